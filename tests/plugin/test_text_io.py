"""TextEncoder, TextDecoder, Javy.IO and console give what the standards, and Javy, give."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .host import Host, Maker

DRIVER = """
const { input, inputBytes, output, clearOutput, register } = Javy.Jeet;
register('encode', () => { clearOutput(); output(new TextEncoder().encode(JSON.parse(input(0)))) });
register('decode', () => { clearOutput(); output(JSON.stringify(new TextDecoder().decode(inputBytes(0)))) });
register('fatal', () => {
  clearOutput();
  try { output(JSON.stringify(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(inputBytes(0)))) }
  catch (error) { output(JSON.stringify(error instanceof TypeError ? null : String(error))) }
});
register('stream', () => {
  clearOutput();
  const bytes = inputBytes(0), step = inputBytes(1)[0], decoder = new TextDecoder();
  let text = '';
  for (let i = 0; i < bytes.length; i += step) text += decoder.decode(bytes.subarray(i, i + step), { stream: true });
  output(JSON.stringify(text + decoder.decode()));
});
register('into', () => {
  clearOutput();
  const room = new Uint8Array(inputBytes(1)[0]);
  const { read, written } = new TextEncoder().encodeInto(JSON.parse(input(0)), room);
  output(JSON.stringify({ read, written, bytes: [...room.subarray(0, written)] }));
});
"""

# What is rich in UTF-8's corners: cut, overlong, surrogate and too large sequences among good ones.
GOOD = (b"a", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x8c\x8d", b"\xef\xbb\xbf", b"\0")
CUT = (b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x8c", b"\xff")
WRONG = (b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80")
PIECES = st.sampled_from(GOOD + CUT + WRONG)
BYTES = st.lists(PIECES | st.binary(max_size=3), max_size=30).map(b"".join)
RELAXED = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def host(maker: Maker) -> Iterator[Host]:
    with maker.instance() as host:
        assert host.evaluate(DRIVER) == 0, host.error
        yield host


def ask(host: Host, entry: str, *slots: bytes) -> bytes:
    for slot, data in enumerate(slots):
        host.export("jeet-input", slot, host.put(data) if data else 0, len(data))
    assert host.call(entry) == 0, host.error
    pointer, size = host.words(host.export("jeet-output"), 2)
    return host.get(pointer, size)


@RELAXED
@given(data=BYTES)
def test_decoding_replaces_exactly_what_python_replaces(host: Host, data: bytes) -> None:
    expected = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    assert json.loads(ask(host, "decode", data)) == expected


@RELAXED
@given(data=BYTES, step=st.integers(1, 7))
def test_decoding_in_parts_gives_the_same_as_at_once(host: Host, data: bytes, step: int) -> None:
    expected = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    assert json.loads(ask(host, "stream", data, bytes([step]))) == expected


@RELAXED
@given(data=BYTES)
def test_fatal_decoding_refuses_exactly_what_python_refuses(host: Host, data: bytes) -> None:
    try:
        expected: str | None = data.decode("utf-8")
    except UnicodeDecodeError:
        expected = None
    assert json.loads(ask(host, "fatal", data)) == expected


@RELAXED
@given(text=st.text(st.characters(), max_size=40))
def test_encoding_gives_utf_8_with_lone_surrogates_replaced(host: Host, text: str) -> None:
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    assert ask(host, "encode", json.dumps(text).encode()) == expected


@RELAXED
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), room=st.integers(0, 40))
def test_encoding_into_a_buffer_stops_at_the_last_whole_character(host: Host, text: str, room: int) -> None:
    read, kept = 0, b""
    for character in text:
        if len(kept) + len(character.encode()) > room:
            break
        kept += character.encode()
        read += 2 if ord(character) > 0xFFFF else 1
    found = json.loads(ask(host, "into", json.dumps(text).encode(), bytes([room])))
    assert found == {"read": read, "written": len(kept), "bytes": list(kept)}


def test_the_classes_have_the_members_of_the_standard(any_maker: Maker) -> None:
    with any_maker.instance() as host:
        said = host.run(
            "const e = new TextEncoder(), d = new TextDecoder('UTF-8', { fatal: true });\n"
            "console.log(e.encoding, d.encoding, d.fatal, d.ignoreBOM, e.encode('é').join());\n"
            "const view = new Uint8Array([65, 66, 67, 68]);\n"
            "console.log(d.decode(view.subarray(1, 3)), d.decode(view.buffer));\n"
            "try { new TextDecoder('latin1') } catch (error) { console.log(error.name) }\n"
            "try { d.decode(new Uint8Array([255])) } catch (error) { console.log(error.name) }"
        )
        assert said == "utf-8 utf-8 true false 195,169\nBC ABCD\nRangeError\nTypeError\n"


def test_what_is_no_buffer_cannot_be_decoded_and_no_new_means_no_object(maker: Maker) -> None:
    with maker.instance() as host:
        said = host.run(
            "const failing = (f) => { try { f(); return 'none' } catch (error) { return error.name } };\n"
            "const d = new TextDecoder();\n"
            "console.log([() => d.decode('x'), () => d.decode({}), () => TextDecoder(), () => TextEncoder(),\n"
            "  () => TextDecoder.prototype.decode.call({}), () => d.decode(null)].map(failing).join());\n"
            "const buffer = new ArrayBuffer(8); const view = new Uint8Array(buffer); buffer.transfer();\n"
            "const abc = new Uint8Array([65, 66, 67]);\n"
            "console.log(d.decode(new DataView(abc.buffer, 1, 1)), failing(() => d.decode(view)), d.decode().length);\n"
            "class Mine extends TextDecoder { } console.log(new Mine().decode(abc), new Mine() instanceof Mine)"
        )
        assert said == "TypeError,TypeError,TypeError,TypeError,TypeError,TypeError\nB TypeError 0\nABC true\n"


def test_reading_takes_what_is_there_and_nothing_at_the_end(maker: Maker) -> None:
    with maker.instance(stdin=b"hello") as host:  # where the official plugin would look for its configuration
        said = host.run(
            "const buffer = new Uint8Array(3), text = new TextDecoder();\n"
            "for (let n; (n = Javy.IO.readSync(0, buffer)) > 0;) console.log(n, text.decode(buffer.subarray(0, n)));\n"
            "console.log('end', Javy.IO.readSync(0, buffer))"
        )
        assert said == "3 hel\n2 lo\nend 0\n"


def test_writing_goes_to_stdout_and_stderr_and_to_nothing_else(any_maker: Maker) -> None:
    with any_maker.instance() as host:
        said = host.run(
            "const bytes = new TextEncoder().encode('xabcx');\n"
            "console.log(Javy.IO.writeSync(1, bytes.subarray(1, 4)), Javy.IO.writeSync(2, bytes));\n"
            "const tried = (f) => { try { f(); console.log('passed') } catch { } };\n"
            "for (const fd of [0, 3, 99, -1, '1']) tried(() => Javy.IO.writeSync(fd, bytes));\n"
            "for (const fd of [1, 3, '0']) tried(() => Javy.IO.readSync(fd, bytes));\n"
            "for (const data of ['x', null, {}]) tried(() => Javy.IO.writeSync(1, data));"
        )
        assert said == "abc3 5\n"
        assert host.stderr == "xabcx"


def test_console_joins_its_arguments_as_strings(any_maker: Maker) -> None:
    with any_maker.instance() as host:
        said = host.run("console.log(1, 'two', null, undefined, [3, 4], {}, Symbol('s'), true); console.log()")
        assert said == "1 two   3,4 [object Object] Symbol(s) true\n\n".replace("two  ", "two null undefined")
        host.run("console.error('to', 'stderr')")
        assert host.stderr == "to stderr\n"


def test_a_value_that_resists_the_console_is_an_error_of_the_caller(maker: Maker) -> None:
    with maker.instance() as host:
        said = host.run(
            "try { console.log('a', { toString() { throw new Error('no') } }) } catch (e) { console.log(e.message) }\n"
            "console.log('x'.repeat(100000).length, 'y'.repeat(3000))"
        )
        assert said == "no\n100000 " + "y" * 3000 + "\n"
