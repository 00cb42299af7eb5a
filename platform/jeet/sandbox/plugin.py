"""A Javy plugin: loaded, probed once, and used to compile, describe and run functions.

Works on any plugin of the Javy ABI (exports memory, initialize-runtime, cabi_realloc, compile-src, invoke; WASI
preview 1; Javy.IO). The built-in plugin has more (platform/plugin/README.md): a call that evaluates no module again,
errors that do not abort, promise jobs run at will. Bytecode belongs to the plugin that made it, by hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import wasmtime

from jeet.errors import DeployError, PluginError, RetryLater
from jeet.sandbox import wasi
from jeet.sandbox.call import GuestTrap, InstanceSpec, StateReader, TrapKind
from jeet.sandbox.describe import Description, clash_of, emits_of, is_operator
from jeet.sandbox.engine import WASM_STACK_BYTES, Engine
from jeet.sandbox.frames import OP_ANSWER
from jeet.sandbox.gate import check_json
from jeet.sandbox.instance import DriverRefused, Instance, ask_driver
from jeet.sandbox.limits import Limits
from jeet.sandbox.machine import BOOT_BUDGET, MODULE_BUDGET, Budget, Machine
from jeet.sandbox.module import CALL_SOURCE, driver_source, read_bytecode, write_dynamic_module
from jeet.sandbox.probe import CONFIGURATIONS, PROBES, Traits, probe
from jeet.sandbox.schema import InputSchema, check_schema
from jeet.sandbox.snapshot import Snapshot, keeps_state_in_memory
from jeet.sandbox.snapshot import take as take_snapshot
from jeet.sandbox.source import Source, read_source
from jeet.sandbox.trace import ModuleFailed, SyntaxFault, deploy_error, module_failed, place, syntax_fault
from jeet.sandbox.wasmfile import MAGIC, custom_section

BUILT_IN = Path(__file__).with_name("jeet-plugin.wasm")
_EXPORTS = ("memory", "initialize-runtime", "cabi_realloc", "compile-src", "invoke")
_COMPILE_MEMORY = 256 * 1024 * 1024
_OUTSIDE_HEAP = 3 * 1024 * 1024  # of the built-in plugin's memory: stack, reserve, what an allocator leaves unused


@dataclass(frozen=True)
class Compiled:
    """Bytecode of one module, tied to the plugin that made it."""

    bytecode: bytes
    plugin_hash: str
    filename: str = "function.js"
    source: Source | None = None
    """None: it came as .wasm"""


class Plugin:
    """One plugin in one engine. Safe to use from several threads; what it makes is used by one thread at a time."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self.path = path
        try:
            wasm = path.read_bytes()
        except OSError as error:
            raise PluginError(
                f"the Javy plugin {path} cannot be read ({error.strerror}); check JEET_JAVY_PLUGIN"
            ) from error
        self.hash = hashlib.sha256(wasm).hexdigest()
        self.namespace = _namespace(wasm, path)
        self._engine = engine
        module = engine.module(wasm)
        exported = {export.name for export in module.exports}
        missing = [name for name in _EXPORTS if name not in exported]
        if missing:
            raise PluginError(f"{path} is not a Javy plugin: it does not export {', '.join(missing)}")
        linker = wasmtime.Linker(engine.wasm)
        wasi.define(linker, module)
        self._linker = linker  # keeps the functions alive
        self._pre = linker.instantiate_pre(module)
        self.has_extras = "jeet-call" in exported and "jeet-eval-module" in exported
        self.keeps_modules = not self.has_extras
        self._configuration: bytes | None = b""
        self._careful: set[str] = set()
        self.runs_jobs = True
        """whether promises work: the plugin's event loop is on"""
        if not self.has_extras:
            traits = self._traits()
            self._configuration, self.runs_jobs = CONFIGURATIONS[traits.configuration], traits.runs_jobs
        self._snapshots = keeps_state_in_memory(wasm)
        self._snapshot: Snapshot | None = None
        self._snapshot_lock = threading.Lock()
        self._driver = self._own_bytecode("driver", driver_source())
        self._caller = self._own_bytecode("caller", CALL_SOURCE)

    # Making bytecode.

    def compile(self, source: str, filename: str, limits: Limits = Limits()) -> Compiled:  # noqa: B008  frozen
        """Source to bytecode, inside the sandbox; DeployError (`file:line: what`) for what does not compile."""
        read = read_source(source, filename, limits.source_bytes)
        try:
            bytecode = self._compile(read.text)
        except SyntaxFault:
            lines = source.count("\n") + 1
            try:
                self._compile(source)
            except SyntaxFault as original:
                fault = original
            raise DeployError(f"{filename}:{min(max(fault.line, 1), lines)}: {fault.what}") from None
        return Compiled(bytecode=bytecode, plugin_hash=self.hash, filename=filename, source=read)

    def from_wasm(self, wasm: bytes, filename: str = "function.wasm") -> Compiled:
        """Take the bytecode out of a dynamically linked module; it must have been built for this very plugin."""
        return Compiled(
            bytecode=read_bytecode(wasm, self.namespace, filename),
            plugin_hash=self.hash,
            filename=filename,
            source=None,
        )

    def module_bytes(self, compiled: Compiled) -> bytes:
        """The dynamically linked module that `javy build -C dynamic` would write."""
        return write_dynamic_module(compiled.bytecode, self.namespace)

    def _compile(self, text: str) -> bytes:
        with self._machine(_COMPILE_MEMORY) as machine:
            data = text.encode()
            try:
                pointer = machine.place(data)
                result = int(machine.call("compile-src", pointer, len(data)))
                failed, at, length = _three_words(machine.memory_read(result, 12))
                found = machine.memory_read(at, length)
            except GuestTrap as trap:
                raise SyntaxFault(f"the source cannot be compiled: {trap}", 1) from trap
        if failed:
            raise syntax_fault(found.decode("utf-8", "replace"))
        return found

    def _own_bytecode(self, kind: str, source: str) -> bytes:
        digest = hashlib.sha256(f"{self.hash} {source}".encode()).hexdigest()
        known = self._engine.cached(kind, digest)
        if known is None:
            try:
                known = self._compile(source)
            except SyntaxFault as fault:
                raise PluginError(
                    f"{self.path} cannot compile Jeet's own code: {fault.what} (line {fault.line})"
                ) from fault
            self._engine.keep(kind, digest, known)
        return known

    # Reading and running modules.

    def describe(self, compiled: Compiled) -> Description:
        """Run the module's top level without any event and read what it declares; DeployError for any mistake in it."""
        spec = InstanceSpec(function="", version=0, partition=0, outputs=(), sink=True)
        with self._driven(spec.limits.guest_memory_bytes) as machine:
            try:
                self._boot(machine, compiled, spec)
                graph_text, config_text = ask_driver(machine, self, BOOT_BUDGET, b"describe")
            except DriverRefused as refused:
                raise deploy_error(compiled.filename, refused.error, refused.stack) from None
            except GuestTrap as trap:
                raise DeployError(f"{compiled.filename}: the module's top level {trap}") from None
        for what, text in (("graph", graph_text), ("config", config_text)):
            if (verdict := check_json(text)) is not None:
                raise DeployError(f"{compiled.filename}: the {what} {verdict}")
        described = json.loads(graph_text)
        graph = described["graph"]
        config = json.loads(config_text)
        if config is not None and config.get("input") is not None:
            try:
                check_schema(config["input"], self._engine.schemas, Limits())
            except DeployError as error:
                raise DeployError(f"{compiled.filename}: {error}") from None
        source = compiled.source
        collections = dict.fromkeys(source.collections if source else ())
        if (clash := clash_of(graph, tuple(collections))) is not None:
            raise DeployError(f"{compiled.filename}:{clash[0]}: {clash[1]}")
        declared = config.get("state") if config is not None else None
        if isinstance(declared, dict):
            collections.update(dict.fromkeys(declared))
        return Description(
            config=config,
            graph=graph,
            emits=emits_of(config, graph, source.literal_emits if source else ()),
            collections=tuple(collections),
            lints=self._lints(source) if source is not None else (),
            stateless_source=source is None,
            migrates=described["migrates"],
        )

    def _lints(self, source: Source) -> tuple[str, ...]:
        lints = [f"{source.filename}:{lint.line}: {lint.message}" for lint in source.lints]
        if source.promises_at is not None and not self.runs_jobs:
            lints.append(
                f"{source.filename}:{source.promises_at}: promises do not run on this Javy plugin, as its event loop is"
                " off: events that use them become dead letters"
            )
        return tuple(lints)

    def instantiate(self, compiled: Compiled, spec: InstanceSpec, reader: StateReader) -> Instance:
        """A new instance with the module evaluated; GuestTrap if its top level fails, RetryLater for want of memory."""
        if compiled.plugin_hash != self.hash:
            raise PluginError("this bytecode was made by another plugin; compile it again from its source")
        machine = self._start_driver(spec.limits.guest_memory_bytes)
        try:
            self._boot(machine, compiled, spec)
            operators, migrates = _prepared(ask_driver(machine, self, BOOT_BUDGET, b"prepare"))
        except DriverRefused as refused:
            machine.close()
            kind: TrapKind = "memory" if "out of memory" in refused.error else "abort"
            raise GuestTrap(f"the module cannot run: {refused.error}", kind=kind, suspects=range(0)) from None
        except BaseException:
            machine.close()
            raise
        digest = hashlib.sha256(compiled.bytecode).hexdigest()
        schema = None
        if spec.input_schema is not None:
            schema = InputSchema(spec.input_schema, self._engine.schemas, spec.limits, spec.slice_ms)
        where = partial(_place, compiled.filename)
        return Instance(machine, self, spec, reader, where, digest, operators, schema, migrates=migrates)

    def is_careful(self, digest: str) -> bool:
        """Whether this module has returned text that the gate refused: its instances then check each text at once."""
        return digest in self._careful

    def be_careful(self, digest: str) -> None:
        self._careful.add(digest)

    def call_driver(self, machine: Machine, budget: Budget) -> None:
        """Let the driver act on the message it was given."""
        if self.has_extras:
            name = self._entry_name(machine)
            if machine.call("jeet-call", name, len(_ENTRY), budget=budget) != 0:
                said = _last_error(machine)
                kind: TrapKind = "memory" if "out of memory" in said else "abort"
                raise GuestTrap(f"the driver failed: {said.splitlines()[0]}", kind=kind, suspects=range(0))
        else:
            self._invoke(machine, self._caller, budget)

    def _entry_name(self, machine: Machine) -> int:
        known = machine.notes.get("entry")
        if known is None:
            known = machine.notes["entry"] = machine.place(_ENTRY)
        return known

    def _boot(self, machine: Machine, compiled: Compiled, spec: InstanceSpec) -> None:
        ask_driver(machine, self, BOOT_BUDGET, b"open", _open_message(spec, compiled))
        machine.on_frame = _nothing_yet(machine)
        try:
            self._evaluate(machine, compiled.bytecode, MODULE_BUDGET)
        except ModuleFailed as failed:
            raise DriverRefused(failed.error, failed.stack) from None

    def _evaluate(self, machine: Machine, bytecode: bytes, budget: Budget) -> None:
        """Evaluate a module; ModuleFailed if it threw."""
        if self.has_extras:
            pointer = machine.place(bytecode)
            status = machine.call("jeet-eval-module", pointer, len(bytecode), budget=budget)
            machine.call("cabi_realloc", pointer, len(bytecode), 1, 0)
            if status != 0:
                raise module_failed(_last_error(machine))
        else:
            try:
                self._invoke(machine, bytecode, budget)
            except GuestTrap as trap:
                if trap.kind == "abort":
                    raise module_failed(str(trap).removeprefix("the JavaScript engine aborted: ")) from None
                raise

    def _invoke(self, machine: Machine, bytecode: bytes, budget: Budget) -> None:
        pointer = machine.place(bytecode)
        machine.call("invoke", pointer, len(bytecode), 0, 0, 0, budget=budget)

    def _start_driver(self, memory_bytes: int) -> Machine:
        """A machine with the driver running and nothing else."""
        with self._snapshot_lock:
            if self._snapshots and self._snapshot is None:
                self._snapshot = self._take_snapshot()
        machine = self._new_machine(memory_bytes)
        try:
            if self._snapshot is not None and self._snapshot.size <= memory_bytes:
                with _from_the_host():
                    self._snapshot.restore(machine)
            else:
                self._boot_driver(machine)
            if machine.has("jeet-memory-limit"):
                # JavaScript then runs into an error of its own, with some room to handle it, before the memory is full.
                machine.call("jeet-memory-limit", max(memory_bytes - _OUTSIDE_HEAP, memory_bytes // 2))
        except BaseException:
            machine.close()
            raise
        return machine

    def _take_snapshot(self) -> Snapshot:
        make = partial(self._new_machine, _COMPILE_MEMORY)
        with closing(make()) as started, closing(make()) as fresh:
            self._boot_driver(started)
            with _from_the_host():
                return take_snapshot(started, fresh)

    def _new_machine(self, memory_bytes: int) -> Machine:
        with _from_the_host():
            return Machine(self._engine, self._pre, memory_bytes)

    def _boot_driver(self, machine: Machine) -> None:
        self._initialise(machine)
        if self.has_extras:
            self._entry_name(machine)
        try:
            self._evaluate(machine, self._driver, BOOT_BUDGET)
        except ModuleFailed as failed:
            raise PluginError(f"{self.path} cannot run Jeet's own code: {failed.error}") from failed

    @contextmanager
    def _driven(self, memory_bytes: int) -> Iterator[Machine]:
        machine = self._start_driver(memory_bytes)
        try:
            yield machine
        finally:
            machine.close()

    @contextmanager
    def _machine(self, memory_bytes: int) -> Iterator[Machine]:
        machine = self._new_machine(memory_bytes)
        try:
            self._initialise(machine)
            yield machine
        finally:
            machine.close()

    def _initialise(self, machine: Machine) -> None:
        if self._configuration is not None:
            machine.give_raw(self._configuration)
            machine.call("initialize-runtime")
            machine.give_raw(b"")
        if machine.has("jeet-host-stack"):
            machine.call("jeet-host-stack", WASM_STACK_BYTES)

    def _traits(self) -> Traits:
        digest = hashlib.sha256(f"{self.hash} {PROBES}".encode()).hexdigest()
        known = self._engine.cached("probe", digest)
        if known is not None:
            return Traits(**json.loads(known))
        try:
            traits = probe(self._run_probe)
        except PluginError as error:
            raise PluginError(f"{self.path}: {error}") from None
        self._engine.keep("probe", digest, json.dumps(asdict(traits)).encode())
        return traits

    def _run_probe(self, configuration: bytes | None, source: str) -> tuple[list[str], str]:
        self._configuration = configuration
        said: list[str] = []

        def on_frame(op: int, payload: bytes) -> None:
            if op == OP_ANSWER:
                said.append(payload.decode("utf-8", "replace"))

        try:
            bytecode = self._compile(source)
            with self._machine(_COMPILE_MEMORY) as machine:
                machine.on_frame = on_frame
                self._invoke(machine, bytecode, BOOT_BUDGET)
        except (GuestTrap, SyntaxFault) as error:
            return said, str(error).splitlines()[0]
        return said, ""


@contextmanager
def _from_the_host() -> Iterator[None]:
    """What fails in here, before any code of the guest runs, is for want of something on the host: nobody's fault."""
    try:
        yield
    except (GuestTrap, wasmtime.WasmtimeError, MemoryError) as error:
        if "exceeds memory limits" in str(error):
            raise PluginError("this plugin needs more memory than a guest may have (guest_memory_bytes)") from error
        raise RetryLater(f"no sandbox could be made (is this host short of memory?): {error}") from error


_ENTRY = b"__jeet"


def _place(filename: str, stack: str) -> str:
    return place(stack, filename)


def _last_error(machine: Machine) -> str:
    at, length = _two_words(machine.memory_read(int(machine.call("jeet-error")), 8))
    return machine.memory_read(at, length).decode("utf-8", "replace")


def _two_words(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")


def _three_words(data: bytes) -> tuple[int, int, int]:
    return (*_two_words(data), int.from_bytes(data[8:12], "little"))


def _nothing_yet(machine: Machine) -> Callable[[int, bytes], bytes | None]:
    def on_frame(_op: int, _payload: bytes) -> bytes | None:
        machine.violate("the module's top level spoke to the host")
        return None

    return on_frame


def _prepared(answer: list[bytes]) -> tuple[frozenset[str], bool]:
    """The operators that may set timers, and whether entries of state are to be told with the version that wrote them;
    as the driver says before any event has run, hostile like all that it says."""
    try:
        names = json.loads(answer[0])
        if isinstance(names, list) and all(isinstance(name, str) and is_operator(name) for name in names):
            return frozenset(names), answer[1] == b"true"
    except (ValueError, IndexError, RecursionError):
        pass
    raise GuestTrap("the module cannot run: its operators cannot be read", kind="abort", suspects=range(0))


def _open_message(spec: InstanceSpec, compiled: Compiled) -> bytes:
    return json.dumps(
        {
            "function": spec.function,
            "version": spec.version,
            "partition": spec.partition,
            "outputs": [asdict(output) for output in spec.outputs],
            "sink": spec.sink and len(spec.outputs) > 0,
            "limits": spec.limits.as_dict(),
            "plan": {
                "inputs": [asdict(one) for one in spec.plan.inputs],
                "cuts": [asdict(cut) for cut in spec.plan.cuts],
                "timed": spec.plan.timed,
                "delay_ms": spec.plan.delay_ms,
            },
            "cache_entries": spec.cache_entries,
            "cache_bytes": spec.cache_bytes,
            "seed": list(struct.unpack("<4i", os.urandom(16))),
            "rewritten": compiled.source is not None,
            "settle": compiled.source is None or compiled.source.may_wait,
        }
    ).encode()


def _namespace(wasm: bytes, path: Path) -> str:
    """The name of the module under which dynamic modules link."""
    if not wasm.startswith(MAGIC):
        raise PluginError(f"{path} is not a WebAssembly module; check JEET_JAVY_PLUGIN")
    try:
        found = custom_section(wasm, "import_namespace")
    except IndexError:
        raise PluginError(f"{path} is cut off; copy the plugin again") from None
    if found is None:
        raise PluginError(f"{path} is not a Javy plugin: it has no section import_namespace")
    return found.decode("utf-8", "replace")
