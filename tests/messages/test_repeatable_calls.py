"""Tests of the rules that decide which tool calls only read."""

from __future__ import annotations

import copy
import json
import pickle
import shlex
import tomllib
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.messages.types import ToolCall

TABLE = tomllib.loads((files("ctxlab.messages") / "repeatable_calls.toml").read_text("utf-8"))
LIMITED = ("sed", "awk", "gawk", "mawk", *TABLE["shell"]["max_arguments"])
LISTED = [
    *TABLE["shell"]["read"].split(),
    *(f"{name} {sub}" for name, subs in TABLE["shell"]["subcommands"].items() for sub in subs),
]
WORDS = st.text("abc ./*'\"$>|;&()", min_size=1, max_size=6).map(shlex.quote)
COMMANDS = st.sampled_from(LISTED).flatmap(
    lambda name: st.lists(WORDS, max_size=0 if name in LIMITED else 2).map(
        lambda words: " ".join([name, *words])
    )
)
SEPARATORS = st.sampled_from([" | ", " && ", " || ", "; ", "\n", " 2>&1 | ", " 2>/dev/null; "])
EFFECTS = st.sampled_from(
    [
        *(" > file", " >> file", " &> file", " | tee file", " | xargs rm", " | sh", " > $file"),
        *(
            "; rm x",
            "\nrm x",
            " && git commit -m x",
            " || mv a b",
            " & cp a b",
            "; sed -i s/a/b/ f",
        ),
        *(" $(rm x)", " `rm x`", ' "$(rm x)"', " <(rm x)", "; (rm x)", "; { rm x; }", "; sudo ls"),
        *("; bash -c 'rm x'", "; timeout 5 rm x", "; env A=1 rm x", "; A=1 rm x", "; bash x.sh"),
        *("; if true; then rm x; fi", "; for f in a; do rm $f; done", "; find . -exec rm {} +"),
        *("; find . -exec grep -- x {} \\; -delete", "; sort f -o f", "; git branch -D x", "; 'a"),
        *(
            "; git branch x",
            "; curl -X POST u",
            "; curl -sXPOST u",
            "; curl -d x u",
            "; awk '{print>f}'",
        ),
        *("; awk 'BEGIN{system(x)}'", "; sed -n 's/a/b/w f' f", "; git -C x commit", "; $command"),
        *("; cat > f <<'EOF'\nx\nEOF", "; bash <<'EOF'\nls\nEOF", "; apply_patch <<'EOF'\nx\nEOF"),
    ]
)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """Return a script of one or more commands that only read."""
    script = draw(COMMANDS)
    for command in draw(st.lists(COMMANDS, max_size=2)):
        script += draw(SEPARATORS) + command
    return draw(st.sampled_from(["", "cd src && ", "cd src; ", "A=1 ", "set -e\n"])) + script


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("c1", name, json.dumps(arguments))


def is_repeatable(script: Any, *extra: str) -> bool:
    return RepeatableCalls.default(extra).is_repeatable(call("bash", command=script))


def test_each_listed_command_is_repeatable() -> None:
    assert [command for command in LISTED if not is_repeatable(command)] == []


@given(scripts())
def test_a_script_of_listed_commands_is_repeatable(script: str) -> None:
    assert is_repeatable(script)


@given(scripts(), EFFECTS)
def test_a_script_with_one_effect_is_not_repeatable(script: str, effect: str) -> None:
    assert not is_repeatable(script + effect)


@given(scripts(), EFFECTS)
def test_quoted_text_has_no_effect(script: str, effect: str) -> None:
    assert is_repeatable(f"{script}; echo {shlex.quote(effect)}")


@given(
    st.lists(st.sampled_from(["ls", "rm", "'a b'", "|", "&&", ";", "> f", "2>&1"]), min_size=1),
    st.data(),
)
def test_white_space_does_not_matter(words: list[str], data: st.DataObject) -> None:
    spaces = st.sampled_from([" ", "  ", "\t", " \\\n "])
    spaced = "".join(data.draw(spaces) + word for word in words) + data.draw(spaces)
    assert is_repeatable(spaced) == is_repeatable(" ".join(words))


@given(scripts(), EFFECTS | st.just(""))
def test_the_way_to_run_a_script_does_not_matter(script: str, effect: str) -> None:
    script += effect
    expected, rules = is_repeatable(script), RepeatableCalls.default()
    program = f"text(await tools.exec_command({json.dumps({'cmd': script})}))"
    for other in (
        call("shell", command=["bash", "-lc", script]),
        call("Bash", command=f"bash -c {shlex.quote(script)}"),
        call("mcp__box__runCommand", command=script, description="a"),
        call("exec", input=program),
    ):
        assert rules.is_repeatable(other) == expected


@given(scripts(), st.sampled_from(LISTED))
def test_extra_entries_decide_about_commands(script: str, name: str) -> None:
    added, removed = f"$ {name}", f"!$ {name}"
    assert is_repeatable(f"deploy --now | {script}", "$ deploy")
    assert not is_repeatable(f"deploy --now | {script}")
    assert not is_repeatable(f"deploy --now > f; {script}", "$ deploy")
    assert not is_repeatable(f"{name} a", removed)
    assert not is_repeatable(f"{name} a", added, removed)
    assert is_repeatable(f"{name} -delete", removed, added)


@given(st.sampled_from(["Read", "get_order", "mcp__docs__query-docs", "Write", "frobnicate"]))
def test_the_last_matching_extra_entry_decides_about_tools(name: str) -> None:
    tool = call(name, path="a.py")
    for pattern in (name, name.lower(), "*", f"*{name[-4:]}"):
        assert RepeatableCalls.default([f"!{pattern}", pattern]).is_repeatable(tool)
        assert not RepeatableCalls.default([pattern, f"!{pattern}"]).is_repeatable(tool)
    unrelated = RepeatableCalls.default(["other", "!oth*", f"{name}_x", "$ ls", "!$ cat"])
    assert unrelated.is_repeatable(tool) == RepeatableCalls.default().is_repeatable(tool)


def test_an_extra_command_matches_whole_words_and_skips_options() -> None:
    entries = ("$ kubectl get", "!$ git log -p")
    assert is_repeatable("kubectl -n a get pods -o json", *entries)
    assert not is_repeatable("kubectl getall", *entries)
    assert not is_repeatable("kubectl delete get", *entries)
    assert not is_repeatable("git log -p a", *entries)
    assert is_repeatable("git log a", *entries)
    assert is_repeatable("/usr/bin/python3 -m pytest | head", "$ python3 -m pytest")


@pytest.mark.parametrize("extra", ["ls", [""], ["!"], ["$ "], ["!$"], [7]])
def test_invalid_extra_entries_are_rejected(extra: Any) -> None:
    with pytest.raises(SpecError, match="Expected"):
        RepeatableCalls.default(extra)


def test_rules_can_be_keys_and_be_sent_to_other_processes() -> None:
    rules = RepeatableCalls.default(["!$ ls", "x"])
    for other in (pickle.loads(pickle.dumps(rules)), copy.deepcopy(rules)):
        assert other == rules
        assert hash(other) == hash(rules)
        assert not other.is_repeatable(call("bash", command="ls"))
    assert rules != RepeatableCalls.default()


@pytest.mark.parametrize("product", TABLE["tools"]["read"])
def test_the_listed_tools_of_a_product_are_repeatable(product: str) -> None:
    rules = RepeatableCalls.default()
    for name in TABLE["tools"]["read"][product].split():
        assert rules.is_repeatable(call(name, path="a.py", query="drop table"))
        assert rules.is_repeatable(call(f"mcp__server__{name}")) or "__" in name


def test_tools_that_are_never_repeatable_are_not() -> None:
    rules = RepeatableCalls.default()
    for name in TABLE["tools"]["never"].split():
        assert not rules.is_repeatable(call(name, path="a.py", command="ls"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("get_order", True), ("listOpenIssues", True), ("mcp__x__describe-table", True)),
        *(("github_fetch_pr_patch", True), ("get_merge_request", True), ("get_post", True)),
        *(("get_or_create", False), ("find_one_and_update", False), ("list_create", False)),
        *(
            ("update_order", False),
            ("getaway", False),
            ("github_resolve_thread", False),
            ("", False),
        ),
        *(("TodoWrite", False), ("Task", False), ("ask_user", False), ("book_flight", False)),
        *(("write_stdin", False), ("apply_patch", False), ("BashOutput", False), ("think", False)),
    ],
)
def test_a_tool_is_a_lookup_if_its_name_says_so_and_nothing_else(name: str, expected: bool) -> None:
    assert RepeatableCalls.default().is_repeatable(call(name, id=7)) is expected


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (call("str_replace_editor", command="view", path="a.py"), True),
        (call("str_replace_editor", command="create", path="a.py", file_text=""), False),
        (call("fetch", url="http://a", method="GET"), True),
        (call("fetch", url="http://a", method="POST"), False),
        (call("sql", query="SELECT 1"), True),
        (call("sql", query="INSERT INTO t VALUES (1)"), False),
        (call("sql"), False),
        (call("query", query="mutation { a }"), False),
        (call("bash"), False),
        (call("bash", command=7), False),
        (call("bash", command=["ls", 7]), False),
        (call("bash", command="cd src"), False),
        (call("exec", input="text(ALL_TOOLS.filter(f))"), True),
        (call("exec", input="text(1)"), False),
        (call("exec", input="text(await tools.apply_patch('ls'))"), False),
        (ToolCall("c1", "Read", "{broken"), False),
        (ToolCall("c1", "list_orders", ""), True),
    ],
)
def test_the_arguments_can_decide(tool: ToolCall, expected: bool) -> None:
    assert RepeatableCalls.default().is_repeatable(tool) is expected


@pytest.mark.parametrize(
    "script",
    [
        "/usr/bin/git -C dir --no-pager log --oneline",
        "find . -name '*.py' -exec grep -l a {} \\; | xargs -I{} sed -n '1,5p' {}",
        "for f in $(git ls-files); do [ -f $f ] && cat $f; done",
        "if ! command -v jq >/dev/null 2>&1; then echo no; fi",
        "curl -sSL -o /dev/null -w '%{http_code}' -X GET http://a",
        "gh api graphql -f query='query { viewer { login } }' -F n=1",
        "awk '/a|b/ && $1 > 5 {print $1 \" > \" $2}' f",
        "while read -r line; do echo $line; done < f",
        "cargo add --help",
        "python3 -m json.tool a.json",
        "timeout 9 env A=1 cat a <<< b",
    ],
)
def test_usual_scripts_that_only_read_are_repeatable(script: str) -> None:
    assert is_repeatable(script)


@pytest.mark.parametrize(
    "script",
    [
        "pytest -x",
        "make",
        "go test ./...",
        "npm run build",
        "python -c 'print(1)'",
        "sleep 5; cat log",
        "tail -f log",
        "gh pr checks 5 --watch",
        "gh api graphql -f query='mutation { a }'",
        "gh api repos/a/b -f title=x",
        "git fetch",
        "git config user.name x",
        "git remote add a b",
        "cat script.sh | bash",
        "ls() { rm x; }; ls",
        "go run . --help -x",
        "node script.js --help",
        "env A=1 npm test",
    ],
)
def test_tests_builds_and_commands_with_effects_are_not_repeatable(script: str) -> None:
    assert not is_repeatable(script)
