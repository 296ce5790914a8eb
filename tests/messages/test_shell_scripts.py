"""Tests of the parser that splits shell scripts into simple commands."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.shell_scripts import SimpleCommand, split_shell_script

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
COMMANDS = st.builds(
    SimpleCommand,
    st.lists(TEXTS, min_size=1, max_size=4).map(tuple),
    st.lists(TEXTS, max_size=2).map(tuple),
)


def written(command: SimpleCommand) -> str:
    files = (f"> {shlex.quote(file)}" for file in command.output_files)
    return " ".join([*map(shlex.quote, command.words), *files])


def words(script: str) -> list[tuple[str, ...]] | None:
    commands = split_shell_script(script)
    return None if commands is None else [command.words for command in commands]


@given(st.lists(COMMANDS, min_size=1, max_size=4), st.data())
def test_quoted_words_and_output_files_are_returned_as_they_were(
    commands: list[SimpleCommand], data: st.DataObject
) -> None:
    script = written(commands[0])
    for command in commands[1:]:
        separator = data.draw(st.sampled_from(["|", "&&", "||", ";", "\n", "&", " |\n", ";\n\n"]))
        script += f" {separator} {written(command)}"
    assert split_shell_script(script) == commands


@given(st.lists(COMMANDS, min_size=1, max_size=3))
def test_commands_of_substitutions_and_subshells_are_listed(commands: list[SimpleCommand]) -> None:
    inner = "; ".join(map(written, commands))
    for script in (f"({inner})", f"echo $({inner})", f'echo "a $({inner}) b"', f"cat <({inner})"):
        found = split_shell_script(script)
        assert found is not None
        assert found[: len(commands)] == commands


@given(st.text("ab '\"\\$`(){}<>|;&#\n=*", max_size=30))
def test_every_text_is_split_or_rejected(script: str) -> None:
    split_shell_script(script)


@given(st.text("ab '\"\\", max_size=20))
def test_words_are_those_of_shlex_if_there_is_no_other_syntax(script: str) -> None:
    try:
        expected = shlex.split(script)
    except ValueError:
        assert words(script) is None
    else:
        assert words(script) == ([tuple(expected)] if expected else [])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a 2>&1 1>&2 2>&- < f <<< text", []),
        ("a 2>/dev/null", ["/dev/null"]),
        ("a &> f >> g >| h", ["f", "g", "h"]),
        ("a >& f 2> g", ["f", "g"]),
        ("a '>' f \\> g", []),
        ("a # > f", []),
        ("a b#c > f", ["f"]),
    ],
)
def test_only_redirections_to_files_are_output_files(script: str, expected: list[str]) -> None:
    assert split_shell_script(script) is not None
    assert [
        f for command in split_shell_script(script) or () for f in command.output_files
    ] == expected


def test_the_text_of_a_here_document_is_not_a_command() -> None:
    assert words("cat <<'EOF' | sort\nrm $(x)\nEOF\nls") == [("cat",), ("sort",), ("ls",)]
    assert words("cat <<-EOF\n\trm x\n\tEOF") == [("cat",)]
    assert words("cat <<EOF\n$(rm x)\nEOF") is None


@pytest.mark.parametrize(
    "script",
    [
        *("a 'b", 'a "b', "a $(b", "a `b", "a )", "a ${b", "a >", "a > > b", "cat <<EOF\nb", "a\\"),
        *("case $x in a) b;; esac", "f() { a; }", "a=(b c)", "a >(b)", "${x:-$(b)}"),
    ],
)
def test_unknown_or_invalid_syntax_is_not_split(script: str) -> None:
    assert split_shell_script(script) is None


def test_deeply_nested_scripts_are_not_split() -> None:
    assert split_shell_script("$(" * 5000 + ")" * 5000) is None
    assert split_shell_script("(" * 5000 + ")" * 5000) is None
