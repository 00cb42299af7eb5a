"""Reading a function's source: what is found in it, what is refused, and where."""

from __future__ import annotations

import pytest

from jeet.errors import DeployError
from jeet.sandbox.plugin import Plugin
from jeet.sandbox.source import read_source

from .conftest import Local


def read(source: str) -> object:
    return read_source(source, "f.js", 1_000_000)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("let x = ;", 1),
        ("const a = 1;\nfunction f( {\n}\n", 3),
        ("stream.map(e => {\n  return e;\n", 3),
        ("a\n\n  @@", 3),
        ("export default e => {\n  const x = 1;\n  const x = 2;\n};", 3),
        ("return 5;", 1),
        ("'use strict'; with (a) {}", 1),
        ("`unclosed", 1),
    ],
)
def test_a_syntax_error_is_one_line_with_file_and_line(plugin: Plugin, source: str, line: int) -> None:
    with pytest.raises(DeployError) as refused:
        plugin.compile(source, "dir/orders.js")
    message = str(refused.value)
    assert message.startswith("dir/orders.js:")
    assert "SyntaxError" in message
    assert "\n" not in message
    if plugin.has_extras:  # other plugins' engines know the line less well
        assert abs(int(message.split(":")[1]) - line) <= 1


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import x from 'y';\nstream.map(e => e)", "f.js:1: import is not available"),
        ("stream.map(e => e);\nimport 'y';", "f.js:2: import is not available"),
        ("stream.map(async e => {\n  await import('y');\n})", "f.js:2: import() is not available"),
        ("export * from 'y';", "f.js:1: export … from"),
        ("\nexport { a } from 'y';", "f.js:2: export … from"),
        ("export const { a } = b;", "f.js:1: export one name at a time"),
        ("x\0y", "f.js:1: the source holds a NUL"),
        ("\n\ud800", "f.js:2: the source holds a lone surrogate"),
        ("x".ljust(1_000_001, "x"), "at most 1000000"),
    ],
)
def test_what_cannot_be_deployed_is_refused_by_line(source: str, error: str) -> None:
    with pytest.raises(DeployError) as refused:
        read(source)
    assert error in str(refused.value)


def test_lines_stay_as_they_are() -> None:
    source = "export const config = {\n  a: 1\n};\n\nexport default\n  (e) => e;\nexport function g() {}\nexport { g as h,\n  config as c };\n"  # noqa: E501
    rewritten = read_source(source, "f.js", 10_000).text.split("\n")
    for number, line in enumerate(source.split("\n")):
        kept = line.replace("export default", "").replace("export ", "").strip()
        if " as " not in line:
            assert kept in rewritten[number]
    one_line = "export default e => e.x; export { a as b }; const a = 1"
    assert read_source(one_line, "f.js", 100).text.startswith(
        "const __jeet_d=e => e.x; ;                  const a = 1\n"
    )


def test_every_form_of_export_reaches_the_driver(local: Local) -> None:
    for source in (
        "export const config = { x: 1 }; stream.map(e => e)",
        "const config = { x: 1 }; export { config }; stream.map(e => e)",
        "const c = { x: 1 }; export { c as config }; stream.map(e => e)",
        "const c = { x: 1 }; export { c as 'config' }; stream.map(e => e)",
        "export let config = { x: 1 }; stream.map(e => e); // last line without an end",
        "export var config = { x: 1 }, other = 2\nexport class K {}\nexport async function* g() {}\nstream.map(e => e)",
        "#!/usr/bin/env jeet\nexport const config = { x: 1 }\nexport default class { static x = 1 }.valueOf.call(e => e)".replace(  # noqa: E501
            "class { static x = 1 }.valueOf.call(e => e)", "(e => e)"
        ),
        "\ufeffexport const config = { x: await Promise.resolve(1) }; export default e => e",
        "/* export default 1 */ export const config = { x: 1 }; const s = 'export default 2'; stream.map(e => e) /*",
    ):
        closed = source + "*/" if source.endswith("/*") else source
        function = local(closed)
        assert function.description.config == {"x": 1}
        assert function.feed([5]).values() == [5]


def test_streams_collections_and_module_variables_are_found() -> None:
    found = read_source(
        """let count = 0;
        var seen;
        const fine = 1;
        export let shared = {};
        stream.map((e, c) => {
          let local = 1;
          c.emit('alerts', 1); context.emit("more", 2); c.emit(`no${e}`, 3); c.emit(name, 4); c.emit('alerts', 5);
          state.totals[e.a] = state['seen'][e.b]; const { users } = state; other.state.x; state[e.c];
        });""",
        "f.js",
        10_000,
    )
    assert found.literal_emits == ("alerts", "more")
    assert found.collections == ("totals", "seen")
    assert [lint.line for lint in found.lints] == [1, 2, 4]
    assert "count is a module-level variable" in found.lints[0].message


def test_a_very_deep_or_long_source_does_no_harm(plugin: Plugin) -> None:
    for source in (
        "(" * 20_000 + ")" * 20_000,
        "[" * 50_000,
        "a" + "+a" * 100_000,
        "x" * 900_000,
        "{" * 30_000,
        "!" * 100_000 + "1",
    ):
        try:
            plugin.compile(source, "deep.js")
        except DeployError as refused:
            assert str(refused).startswith("deep.js:")  # noqa: PT017


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("\n\nthrow new Error('at the top');", "f.js:3: Error: at the top"),
        ("const x = 1;\nundefinedName();", "undefinedName is not defined"),
        ("export default 5;", "f.js: TypeError: export default must be a function"),
        ("export default e => e; stream.map(e => e);", "either export default or stream"),
        ("export const config = [1]; export default e => e;", "config must be an object"),
        ("export const config = { onFail: () => 1 }; export default e => e;", "config.onFail is a function"),
        (
            "export const config = { input: { type: 'nonsense' } }; export default e => e;",
            "config.input is not a JSON Schema",
        ),
        ("export const config = { input: 5 }; export default e => e;", "config.input must be a JSON Schema"),
        ("stream.map(5);", "Error: stream.map takes a function"),
        ("\nstream.mpa(e => e);", "stream.mpa does not exist: there are map, filter, flatMap, peek, keyBy"),
        ("for (;;);", "f.js: the module's top level used more than"),
        ("await new Promise(() => {}); export default e => e", "f.js"),
        ("(function f() { f(); })()", "f.js"),
        ("const a = []; for (;;) a.push(new Array(10000).fill(1));", "f.js"),
    ],
)
def test_a_mistake_in_the_module_is_one_line_at_deploy(plugin: Plugin, source: str, error: str) -> None:
    with pytest.raises(DeployError) as refused:
        plugin.describe(plugin.compile(source, "f.js"))
    assert error in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_description_is_the_graph_as_a_value(plugin: Plugin) -> None:
    source = """export const config = { source: 'in', sink: 'out', emits: ['a', { stream: 'b' }], state: { x: { ttl: '7d' } } };
    let n = 0;
    const big = stream.filter(function isBig(e) { return e.n > 1; });
    big.map(e => e)
       .to('c');
    big.peek((e, context) => context.emit('a', e) || context.emit('d', e) || state.y.z);
    """  # noqa: E501
    described = plugin.describe(plugin.compile(source, "f.js"))
    assert described.config == {
        "source": "in",
        "sink": "out",
        "emits": ["a", {"stream": "b"}],
        "state": {"x": {"ttl": "7d"}},
    }
    assert [
        (node["id"], node["op"], node["inputs"], node.get("name"), node.get("stream")) for node in described.graph
    ] == [
        (0, "source", [], None, None),
        (1, "filter", [0], "isBig", None),
        (2, "map", [1], None, None),
        (3, "to", [2], None, "c"),
        (4, "peek", [1], None, None),
    ]
    assert [node["line"] for node in described.graph[1:3]] == [3, 4]
    assert [(emit.name, emit.declared) for emit in described.emits] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("d", False),
    ]
    assert described.collections == ("y", "x")
    assert described.lints == (
        "f.js:2: n is a module-level variable: it is not state, is lost when the task moves and is not rolled back; use const for a constant, or state.<collection>[key]",  # noqa: E501
    )
