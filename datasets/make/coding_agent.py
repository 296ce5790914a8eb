"""Generate the data set ``coding-agent``: a scripted agent works on tickets with real tools.

The agent behaves like an engineer: it reads code, makes a wrong guess, reproduces the fault, plans,
edits, makes a mistake, looks up facts from much earlier, and reports. Its next action depends on the
results of its tools. The tools, their output and the changes to the code base are real. Wording and
order of the steps are random, with a fixed seed for each recording.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxlab.messages.types import Recording
from datasets.make.jobs import Job, load_job
from datasets.make.transcript import Bag, Transcript
from datasets.make.words import load_words
from datasets.make.workspace import TOOLS, Workspace

NAME = "coding-agent"

_TASKS: tuple[tuple[str, tuple[str, str, str], int], ...] = (
    ("reservations-1", ("KST-2114", "KST-2301", "KST-2271"), 101),
    ("reservations-2", ("KST-2114", "KST-2301", "KST-2271"), 102),
    ("tax-cents-1", ("KST-2187", "KST-2294", "KST-2330"), 201),
    ("tax-cents-2", ("KST-2187", "KST-2294", "KST-2330"), 202),
    ("price-lists-1", ("KST-2203", "KST-2318", "KST-2288"), 301),
    ("promised-days-1", ("KST-2239", "KST-2256", "KST-2294"), 401),
    ("check-digits-1", ("KST-2288", "KST-2203", "KST-2301"), 501),
    ("returns-1", ("KST-2256", "KST-2271", "KST-2318"), 601),
)
"""Name of the recording, its tickets in order, and its seed.

Recordings whose names differ only in the last digit are repeated trials of one task.
"""

_FIRST_DAY = 1_762_761_600  # 2025-11-10 08:00 UTC
_FAR = 18_000  # characters; a little more than 4,000 tokens
_FAILED = re.compile(r"^FAILED (\S+)::(\w+)\n +(.*)((?:\n    .*)*)", re.M)
_AT = re.compile(r"^    at (\S+):(\d+) in \w+$", re.M)
_DEFINED = re.compile(r"^ *(\d+)  +(?:def|class) (\w+)|^ *(\d+)  ([A-Z_]{4,})\b.* = ", re.M)


def recordings() -> Iterator[tuple[str, Recording]]:
    """Yield the file name and the recording of each conversation of this data set."""
    for day, (name, tickets, seed) in enumerate(_TASKS):
        with tempfile.TemporaryDirectory() as folder:
            workspace = Workspace(Path(folder) / "repository")
            agent = _Agent(workspace, [load_job(t) for t in tickets], seed, day)
            transcript = agent.run()
        task = name.rsplit("-", 1)[0]
        meta = {"seed": seed, "task": task, "tickets": list(tickets)}
        yield f"{name}.jsonl", transcript.recording(NAME, name, task, meta, TOOLS)


class _Agent:
    """The scripted agent of one recording, with the workspace, the jobs and the names it has seen."""

    def __init__(self, workspace: Workspace, jobs: list[Job], seed: int, day: int) -> None:
        self.rng = random.Random(seed)
        self.workspace, self.jobs = workspace, jobs
        start = _FIRST_DAY + day * 86_400 + self.rng.randint(0, 3 * 3_600)
        self.transcript = Transcript(self.rng, start, workspace.execute)
        self.texts = load_words("coding")
        self.words = Bag(self.texts["pools"], self.rng)
        self.last = ""
        self.seen: dict[str, list[tuple[str, int]]] = {}
        "for the path of each file that was read in full: the names it defines, with line numbers"
        self.codes: list[str] = []

    def run(self) -> Transcript:
        """Work on all jobs, review them, and return the transcript."""
        for job in self.jobs:
            for plant in job.plants:
                self._replace(plant.path, plant.right, plant.wrong)
            self.workspace.put(f"tickets/{job.ticket}.md", job.ticket_text)
        self.transcript.system(self.texts["system"])
        self.transcript.user(self.jobs[0].brief)
        self._orient(self.jobs[0])
        for position, job in enumerate(self.jobs):
            if position:
                self.transcript.user(job.follow_up, 120, 2_400)
                self._ticket(job)
            self._work(job)
        first = self.jobs[0].ticket
        self.transcript.user(
            self.rng.choice(self.texts["review_requests"]).format(first=first), 600, 5_000
        )
        self._review()
        return self.transcript

    # -- steps ------------------------------------------------------------------------------

    def _orient(self, job: Job) -> None:
        ticket = f"tickets/{job.ticket}.md"
        tree = self._act("orient", ("list_files", {"path": "."}), ("read_file", {"path": ticket}))[
            0
        ]
        files = tree.splitlines()[-1]
        readme = ("read_file", {"path": "README.md"})
        self._act("readme", readme, ("read_file", {"path": "docs/architecture.md"}), files=files)
        self._act("baseline", ("run_tests", {}))
        failed = re.search(r"(\d+) failed", self.last)
        modules = sorted({path for path, *_ in _FAILED.findall(self.last)})
        self._act(
            "baseline_seen",
            ("search", {"pattern": job.entry}),
            failed=failed[1] if failed else "no",
            modules=", ".join(modules),
            entry=job.entry,
            ticket=job.ticket,
        )

    def _ticket(self, job: Job) -> None:
        ticket = f"tickets/{job.ticket}.md"
        calls = ("read_file", {"path": ticket}), ("search", {"pattern": job.entry})
        self._act("ticket", *calls, ticket=job.ticket, entry=job.entry)

    def _work(self, job: Job) -> None:
        self._study(job)
        if self.rng.random() < 0.7:
            self._stumble(job)
        self._look_back(2)
        self._change(job)
        self._look_back(1)
        self._guard(job)
        self._sweep(job)
        self._document(job)
        result = self._act("full", ("run_tests", {}))[0].splitlines()[-2].strip() + "."
        paths = " and ".join(dict.fromkeys(f"`{plant.path}`" for plant in job.plants))
        self.transcript.say(
            self.words(
                "summary",
                ticket=job.ticket,
                area=job.area,
                diagnosis=job.diagnosis,
                remedy=job.remedy,
                paths=paths,
                name=job.new_test_name,
                tests=job.tests,
                doc=job.doc,
                result=result,
            )
        )

    def _study(self, job: Job) -> None:
        where, count = self._definition(job.entry), self._count()
        pool = "home_again" if job.home in self.seen else "home"
        self._read(job.home, pool, entry=job.entry, where=where, count=count)
        self._act("reproduce", ("run_cli", {"command": job.cli[0]}), suspicion=job.suspicion)
        tests = {"target": job.tests, "verbose": True}
        self._act("module_tests", ("run_tests", tests), tests=job.tests)
        self._failure("failure")
        other = job.reads[0]
        calls = ("read_file", {"path": job.doc}), ("read_file", {"path": other})
        self._note_names(other, self._act("rules", *calls, doc=job.doc, other=other)[1])
        for symbol, path in zip(job.symbols, job.reads[1:], strict=True):
            self._act("callers", ("search", {"pattern": symbol}), symbol=symbol)
            pool = "related" if path.endswith(".py") else "related_data"
            self._read(path, "again" if path in self.seen else pool, count=self._count())

    def _change(self, job: Job) -> None:
        plan = {
            "ticket": job.ticket,
            "diagnosis": job.diagnosis,
            "remedy": job.remedy,
            "home": job.home,
            "tests": job.tests,
            "doc": job.doc,
            "sweep_note": job.sweep_note,
        }
        first = job.plants[0]
        if self.rng.random() < 0.6:
            quote = first.wrong.strip().splitlines()[0].replace(" ", "  ", 1)
            edit = {"path": first.path, "old": quote, "new": first.right}
            self._act("plan", ("edit_file", edit), **plan)
            line = self._line_of(first.path, first.wrong)
            span = {"path": first.path, "start": max(1, line - 8), "end": line + 10}
            self._act("missed", ("read_file", span))
        else:
            line = self._line_of(first.path, first.wrong)
            span = {"path": first.path, "start": max(1, line - 5), "end": line + 8}
            self._act("plan", ("read_file", span), **plan)
        for position, plant in enumerate(job.plants):
            pool = "second" if position else "edit"
            slips = bool(plant.slip) and self.rng.random() < 0.75
            self._edit(pool, plant.path, plant.wrong, plant.slip if slips else plant.right)
            if slips:
                self._act("check", ("run_tests", {"target": job.tests}), tests=job.tests)
                self._failure("slip_read")
                edit = {"path": plant.path, "old": plant.slip, "new": plant.right}
                self._call(plant.slip_note, ("edit_file", edit))
        self._act("check", ("run_tests", {"target": job.tests, "verbose": True}), tests=job.tests)
        calls = [("run_cli", {"command": command}) for command in job.cli]
        self._act("green", *calls, tests=job.tests)

    def _guard(self, job: Job) -> None:
        text = self.workspace.text(job.tests)
        count = len(text.splitlines())
        span = {"path": job.tests, "start": count - 14, "end": count}
        self._act("test_place", ("read_file", span), tests=job.tests)
        tail = text[text.rstrip().rindex("\n    ") + 1 :]
        self._edit("add_test", job.tests, tail, tail + job.new_test, name=job.new_test_name)
        self._act("run_new", ("run_tests", {"target": f"{job.tests}::{job.new_test_name}"}))

    def _sweep(self, job: Job) -> None:
        arguments: dict[str, Any] = {"pattern": job.sweep, "path": "stockroom"}
        if "|" in job.sweep:
            arguments["regex"] = True
        self._act("sweep", ("search", arguments), note=job.sweep_note, pattern=job.sweep)
        hits = re.findall(r"^(stockroom/\S+?):(\d+):", self.last, re.M)
        hits = [hit for hit in hits if hit[0] != job.home] or hits
        path, line = hits[self.rng.randrange(len(hits))]
        total = len(self.workspace.text(path).splitlines())
        start, end = max(1, int(line) - 18), min(total, int(line) + 22)
        span = {"path": path, "start": start, "end": end}
        values = {"path": path, "line": line, "start": start, "end": end, "count": self._count()}
        self._act("sweep_read", ("read_file", span), **values)

    def _document(self, job: Job) -> None:
        self._act("sweep_done", ("read_file", {"path": job.doc}), doc=job.doc)
        self._edit("edit_text", job.doc, job.doc_old, job.doc_new)
        log = "CHANGELOG.md"
        self._act("changelog", ("read_file", {"path": log, "start": 1, "end": 16}))
        text = self.workspace.text(log)
        unreleased = text[: text.index("## 3.4.1")]
        anchor = "- Reports show the supplier's name instead of its id (KST-2098)."
        if "### Fixed" in unreleased:
            new, old = f"### Fixed\n\n{job.changelog}", "### Fixed"
            old, new = f"{anchor}\n\n{old}", f"{anchor}\n\n{new}"
        else:
            old, new = anchor, f"{anchor}\n\n### Fixed\n\n{job.changelog}"
        self._edit("edit_text", log, old, new)

    def _review(self) -> None:
        for job in self.jobs:
            for look in job.review:
                lead = self.words("review_next", ticket=job.ticket)
                self._call(lead + look.note, (look.tool, dict(look.args)))
            target = f"{job.tests}::{job.new_test_name}"
            call = ("run_tests", {"target": target, "verbose": True})
            self._act("review_test", call, ticket=job.ticket, name=job.new_test_name)
        span = {"path": "CHANGELOG.md", "start": 1, "end": 18}
        self._act("review_log", ("read_file", span))
        result = self._act("full", ("run_tests", {}))[0].splitlines()[-2].strip()
        lines = ["All acceptance points hold; I looked at each of them in the repository.", ""]
        for job in self.jobs:
            kept = job.brief.split("Acceptance: ")[1]
            facts = sorted({str(r.args.get("pattern", r.args.get("command"))) for r in job.review})
            lines.append(f"- {job.ticket} ({job.area}): {kept}")
            lines.append(f"  Checked with: {'; '.join(f'`{fact}`' for fact in facts)}.")
        self.transcript.say("\n".join([*lines, "", f"Whole suite: {result}. Ready to be merged."]))

    # -- habits -----------------------------------------------------------------------------

    def _stumble(self, job: Job) -> None:
        if self.rng.random() < 0.5:
            beside = job.home.replace(".py", "_rules.py")
            path = self.rng.choice([beside, "stockroom/utils.py", "docs/faq.md"])
            self._act("wrong_path", ("read_file", {"path": path}), path=path)
            pool = "wrong_path_seen"
        else:
            path = job.home
            start = len(self.workspace.text(path).splitlines()) + self.rng.randint(8, 60)
            call = ("read_file", {"path": path, "start": start, "end": start + 60})
            self._act("bad_range", call, path=path)
            pool = "bad_range_seen"
        self._look_back(1, self.words(pool) + " ")

    def _look_back(self, times: int, lead: str = "") -> None:
        """Look up names or error codes that were last seen long ago, if there are any."""
        for _ in range(times):
            if self.codes and self.rng.random() < 0.3:
                far = [code for code in self.codes if self._is_far(code)]
                if far:
                    code = self.rng.choice(far)
                    text = lead + self.words("look_back_search", symbol=code)
                    self._call(text, ("search", {"pattern": code}))
                    lead = ""
                    continue
            paths = [path for path, names in self.seen.items() if names and self._is_far(path)]
            if not paths:
                return
            path = self.rng.choice(paths)
            name, line = self.rng.choice(self.seen[path])
            text = lead + self.words("look_back", symbol=name, path=path, line=line)
            lead = ""
            total = len(self.workspace.text(path).splitlines())
            end = min(total, line + self.rng.randint(14, 30))
            self._call(text, ("read_file", {"path": path, "start": max(1, line - 4), "end": end}))

    def _failure(self, pool: str) -> None:
        """Read the code that the first failure of the last test run points to."""
        found = _FAILED.search(self.last)
        if found is None:
            return
        tests, name, message, frames = found[1], found[2], found[3], found[4]
        places = _AT.findall(frames)
        path, line = places[-1] if places and self.rng.random() < 0.4 else places[0]
        start = max(1, int(line) - 14)
        span = {"path": path, "start": start, "end": int(line) + 8}
        values = {"test": name, "message": message, "tests": tests, "path": path, "line": line}
        failed = self.last.count("FAILED ")
        self._act(pool, ("read_file", span), failed=failed, **values)

    def _read(self, path: str, pool: str, **values: object) -> None:
        self._act(pool, ("read_file", {"path": path}), path=path, **values)
        self._note_names(path, self.last)

    def _edit(self, pool: str, path: str, old: str, new: str, **values: object) -> None:
        edit = {"path": path, "old": old, "new": new}
        self._act(pool, ("edit_file", edit), path=path, **values)

    def _act(self, pool: str, *calls: tuple[str, dict[str, Any]], **values: object) -> list[str]:
        return self._call(self.words(pool, **values), *calls)

    def _call(self, text: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        results = self.transcript.act(text, *calls)
        self.last = results[-1]
        for code in re.findall(r"\bE_[A-Z]+_\d{3}\b", self.last):
            if code not in self.codes:
                self.codes.append(code)
        return results

    def _note_names(self, path: str, text: str) -> None:
        found = [(m[2] or m[4], int(m[1] or m[3])) for m in _DEFINED.finditer(text)]
        self.seen[path] = [(name, line) for name, line in found if len(name.strip("_")) > 5]

    def _is_far(self, text: str) -> bool:
        age = self.transcript.age(text)
        return age is not None and age > _FAR

    def _definition(self, name: str) -> str:
        found = re.search(rf"^(\S+:\d+): (?:def|class) {re.escape(name)}\b", self.last, re.M)
        return found[1] if found else "one of these modules"

    def _count(self) -> str:
        first = self.last.splitlines()[0]
        return first[0].upper() + first[1:] if "match" in first else "A short file"

    def _line_of(self, path: str, text: str) -> int:
        whole = self.workspace.text(path)
        return whole[: whole.index(text)].count("\n") + 1

    def _replace(self, path: str, old: str, new: str) -> None:
        text = self.workspace.text(path)
        if text.count(old) != 1:
            raise ValueError(f"Expected {old!r} once in {path}, found it {text.count(old)} times")
        self.workspace.put(path, text.replace(old, new))
