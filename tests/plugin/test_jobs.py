"""Promise jobs, unhandled rejections, entries, input and output, and the interrupt, as a driver uses them."""

from __future__ import annotations

import struct

import pytest

from .host import Host, Maker

OK, THREW, INTERRUPTED = 0, 1, 2


def evaluate(host: Host, source: str) -> str:
    before = len(host.stdout)
    assert host.evaluate(source) == OK, host.error
    return host.stdout[before:]


def test_jobs_are_drained_on_demand(maker: Maker) -> None:
    with maker.instance() as host:
        said = evaluate(
            host,
            "const { drainJobs } = Javy.Jeet; let n = 0;\n"
            "console.log(drainJobs());\n"
            "const step = () => { if (++n < 5000) Promise.resolve().then(step) }; step();\n"
            "console.log(n, drainJobs(), n, drainJobs());",
        )
        assert said == "false\n1 true 5000 false\n"


def test_jobs_that_drain_jobs_are_harmless(maker: Maker) -> None:
    with maker.instance() as host:
        said = evaluate(
            host,
            "const { drainJobs } = Javy.Jeet; const seen = [];\n"
            "for (let i = 0; i < 5; i++) queueMicrotask(() => { seen.push(i); drainJobs() });\n"
            "drainJobs(); console.log(seen.join())",
        )
        assert said == "0,1,2,3,4\n"


def test_only_rejections_without_a_handler_are_reported_the_first_one_and_how_many(maker: Maker) -> None:
    with maker.instance() as host:
        said = evaluate(
            host,
            "const { drainJobs, takeRejection } = Javy.Jeet;\n"
            "console.log(takeRejection());\n"
            "const late = []; for (let i = 0; i < 2000; i++) late.push(Promise.reject(new Error('late ' + i)));\n"
            "Promise.allSettled(late); drainJobs(); console.log(takeRejection());\n"
            "for (const p of late) p.catch(() => 0);\n"
            "Promise.reject(new Error('first')); Promise.reject(undefined); (async () => { throw 3 })(); drainJobs();\n"
            "const { reason, count } = takeRejection(); console.log(reason.message, count, takeRejection());\n"
            "Promise.reject(undefined); console.log(JSON.stringify(takeRejection()), takeRejection());",
        )
        assert said == 'undefined\nundefined\nfirst 3 undefined\n{"count":1} undefined\n'


def test_rejections_and_handlers_in_any_order_are_told_apart(maker: Maker) -> None:
    with maker.instance() as host:
        said = evaluate(
            host,
            "const { drainJobs, takeRejection } = Javy.Jeet; let seed = 7, wrong = 0;\n"
            "const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;\n"
            "for (let round = 0; round < 50; round++) {\n"
            "  const open = [];\n"
            "  for (let i = 0; i < 200; i++) {\n"
            "    if (open.length && random(2)) open.splice(random(open.length), 1)[0].catch(() => 0);\n"
            "    else open.push(Promise.reject(i));\n"
            "  }\n"
            "  drainJobs(); const left = takeRejection();\n"
            "  if ((left?.count ?? 0) !== open.length) wrong++;\n"
            "}\n"
            "console.log(wrong);",
        )
        assert said == "0\n"


def test_a_registered_entry_is_called_and_user_code_cannot_replace_it(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(host, "Javy.Jeet.register('go', () => console.log('entry')); delete globalThis.Javy")
        evaluate(host, "globalThis.go = () => console.log('mine'); Object.prototype.other = () => console.log('proto')")
        assert host.call("go") == OK
        assert host.stdout == "entry\n"
        assert host.call("nothing of this name") == THREW
        assert host.error.startswith("TypeError: not a function")


def test_a_call_evaluates_no_module_and_an_error_leaves_the_instance_usable(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(
            host, "let n = 0;\nglobalThis.go = async () => { await null; if (++n % 2) throw new TypeError('odd ' + n) }"
        )
        for n in range(1, 6):
            assert host.call("go") == n % 2
            if n % 2:
                assert host.error == f"TypeError: odd {n}\n    at <anonymous> (user.js:2:85)", host.error
            else:
                assert host.error == ""


def test_the_namespace_of_the_module_is_there_for_the_driver(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(host, "globalThis.show = Javy.Jeet.namespace; console.log(show())")
        evaluate(
            host, "export const config = { a: 1 }; export default (x) => x + 1; export let n = 1; export { n as m }"
        )
        said = evaluate(
            host, "const ns = show(); console.log(Object.keys(ns).join(), ns.default(1), ns.config.a, ns.m)"
        )
        assert said == "config,default,m,n 2 1 1\n"


def test_a_module_that_waits_for_ever_is_an_error(maker: Maker) -> None:
    with maker.instance() as host:
        assert host.evaluate("await new Promise(() => 0)") == THREW
        assert "top-level await" in host.error
        assert host.evaluate("await null; export const a = 1") == OK


@pytest.mark.parametrize("name", ["user.js", "function.mjs", "y"])
def test_no_import_opens_anything(maker: Maker, name: str) -> None:
    with maker.instance() as host:
        evaluate(host, "export const secret = 1")
        with pytest.raises(SyntaxError, match="could not load module"):
            host.compile(f"import * as all from '{name}'")
        said = evaluate(host, f"import('{name}').catch((e) => console.log(e.message))")
        assert said == f"could not load module '{name}'\n"


def test_stack_traces_name_the_file_and_the_line(maker: Maker) -> None:
    with maker.instance() as host:
        assert host.evaluate("\n\nfunction f() {\n  null.x;\n}\nf();", "functions/totals.js") == THREW
        assert host.error.splitlines() == [
            "TypeError: cannot read property 'x' of null",
            "    at f (functions/totals.js:4:3)",
            "    at <anonymous> (functions/totals.js:6:1)",
        ]


def test_input_and_output_pass_without_calls_of_the_host(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(
            host,
            "const { input, inputBytes, output, clearOutput, register } = Javy.Jeet;\n"
            "register('go', () => { clearOutput(); output(input(0) + '|'); output(inputBytes(15));\n"
            "  output(String(input(3))); output('é🌍'); output(new Uint8Array([0, 255])) })",
        )
        text = "aé🌍\u0000b".encode()
        for _ in range(3):
            assert host.export("jeet-input", 0, host.put(text), len(text)) == 0
            assert host.export("jeet-input", 15, host.put(b"\xff\x00"), 2) == 0
            assert host.call("go") == OK, host.error
            pointer, size = host.words(host.export("jeet-output"), 2)
            assert host.get(pointer, size) == text + b"|\xff\x00undefined" + "é🌍".encode() + b"\x00\xff"
        assert host.export("jeet-input", 16, host.put(b"x"), 1) == 1
        assert host.export("jeet-input", 0, 0, 0) == 0
        assert evaluate(host, "console.log(JSON.stringify(Javy.Jeet.input(0)))") == '""\n'


LOOPS = {
    "loop": "for (;;) ;",
    "recursion": "function f(n) { if (n) { f(n - 1); f(n - 1) } } f(60)",
    "regex": "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    "sort": "const a = Array.from({ length: 1e5 }, (_, i) => i); for (;;) a.sort((x, y) => (x * 7919) % 97 - (y % 89))",
    "generator": "function* g() { for (;;) yield 1 } for (const x of g()) ;",
    "catches": "for (;;) { try { for (;;) ; } catch { } finally { } }",
    "finally": "(function f() { try { for (;;) ; } finally { f() } })()",
    "jobs": "(function f() { Promise.resolve().then(f) })(); Javy.Jeet.drainJobs()",
    "proxy": "const p = new Proxy({}, { get() { return 1 } }); for (;;) p.x",
    "array method": "const a = new Array(1000).fill(0); for (;;) a.map((x) => x).filter((x) => x)",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_deadline_stops_what_does_not_end_and_the_instance_goes_on(maker: Maker, loop: str) -> None:
    with maker.instance() as host:
        evaluate(
            host, f"const {{ setDeadline }} = Javy.Jeet; globalThis.go = () => {{ setDeadline(30); {LOOPS[loop]} }}"
        )
        assert host.call("go") == INTERRUPTED
        assert host.error.startswith("InternalError: interrupted")
        host.export("initialize-runtime")
        assert evaluate(host, "console.log('fresh')") == "fresh\n"


def test_after_an_interrupt_the_same_runtime_can_be_used(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(host, "const { setDeadline } = Javy.Jeet; globalThis.go = () => { setDeadline(20); for (;;) ; }")
        for _ in range(3):
            assert host.call("go") == INTERRUPTED
        evaluate(
            host,
            "Javy.Jeet.setDeadline(0); globalThis.ok = () => { for (let i = 0; i < 1e6; i++) ; console.log('ok') }",
        )
        assert host.call("ok") == OK
        assert host.stdout == "ok\n"


def test_the_interrupt_flag_stops_javascript_until_it_is_cleared(maker: Maker) -> None:
    with maker.instance() as host:
        evaluate(host, "globalThis.go = () => { try { for (let i = 0; i < 1e6; i++) ; } catch { } return 1 }")
        flag = host.export("jeet-interrupt-flag")
        host.memory.write(host.store, struct.pack("<I", 1), flag)
        assert host.call("go") == INTERRUPTED
        host.memory.write(host.store, struct.pack("<I", 0), flag)
        assert host.call("go") == OK
