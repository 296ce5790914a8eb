"""``ctxlab config``: show the settings of agents, and where each comes from."""

from __future__ import annotations

from ctxlab.cli.options import JSON, flag
from ctxlab.cli.output import one_line, print_note, print_result
from ctxlab.errors import SpecError


def command(
    json: bool = JSON,
    init: bool = flag("--init", "Write a settings file in which every setting is a comment."),
) -> None:
    """Show the settings of ctxlab chat and ctxlab serve http, and where each comes from.

    Examples
    --------
    ctxlab config
    ctxlab config --init  write a file to edit
    CTXLAB_MODEL=gpt-5-mini ctxlab config

    The first that is set holds: an option of the command, what a resumed session used, an environment
    variable such as CTXLAB_MODEL, the settings file, the default. The file is config.toml in your folder
    of settings, or the file that CTXLAB_CONFIG names.
    """
    from ctxlab._utils.jsonio import dump_json
    from ctxlab._utils.private_files import create_file
    from ctxlab.cli.render.format import render_to_text
    from ctxlab.cli.render.table import Table
    from ctxlab.cli.settings import (
        SETTINGS,
        env_var,
        resolve_settings,
        settings_path,
        settings_template,
    )
    from ctxlab.evaluation.columns import Column

    path = settings_path()
    if init:
        if path.exists():
            raise SpecError(f"expected no file at {path}, got one; edit it or delete it")
        path.parent.mkdir(parents=True, exist_ok=True)
        create_file(path)
        path.write_text(settings_template(), encoding="utf-8")
        print_note(f"wrote {path}")
        return
    found = resolve_settings()
    if json:
        settings = {name: each._asdict() for name, each in found.items()}
        print_result(dump_json({"file": str(path), "settings": settings}))
        return
    values = ["–" if each.value is None else one_line(str(each.value)) for each in found.values()]
    columns = [
        Column("setting", list(found), left=True),
        Column("value", values, left=True),
        Column("from", [each.source for each in found.values()], left=True),
        Column("environment variable", [env_var(name) for name in found], left=True, drop=1),
        Column("meaning", [SETTINGS[name].meaning for name in found], left=True, drop=2),
    ]
    print_result(render_to_text(Table(columns, prose=True).text))
    print_note(
        f"settings file: {path}{'' if path.exists() else ' (does not exist; --init writes it)'}"
    )
