"""Execute the notebooks and save their outputs: ``python notebooks/execute.py [NOTEBOOK…]``.

Without arguments, all notebooks of this folder are executed. Widgets are left out of the saved outputs,
because a saved notebook has no kernel that could show them; a picture or table that a widget comes with
stays. Times are left out too, so that a notebook that was run again differs only where its results do.
``--check`` executes without saving.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat

HERE = Path(__file__).parent


def execute(path: Path) -> Any:
    """Execute a notebook in its folder, and return it with outputs that can be saved."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    place = {"metadata": {"path": str(path.parent)}}
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources=place, record_timing=False
    )
    client.execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        outputs = []
        for output in cell.get("outputs", ()):
            data = output.get("data")
            if data is not None:
                for kind in [each for each in data if "widget" in each]:
                    del data[kind]
            if data is None or data:
                outputs.append(output)
        if cell.cell_type == "code":
            cell.outputs = outputs
    return notebook


def main(arguments: list[str]) -> None:
    """Execute the named notebooks, or all."""
    named = [Path(each) for each in arguments if each != "--check"]
    for path in named or sorted(HERE.glob("*.ipynb")):
        notebook = execute(path)
        if "--check" not in arguments:
            nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
