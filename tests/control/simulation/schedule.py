"""An event loop whose time and order belong to a seed: what runs next, when a message arrives, who is frozen.

Callbacks belong to actors: the threads of simulated processes, the server, the world. Those of one actor run in the
order in which they were scheduled, as in a real loop; between actors the seed chooses. A frozen actor's callbacks wait,
a dead one's never run. Time moves only when nobody can run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

ACTOR: ContextVar[Actor] = ContextVar("ACTOR")


class Actor:
    """One thread: it can be frozen and it can die."""

    def __init__(self, name: str, process: Any = None) -> None:
        self.name = name
        self.process = process
        self.ready: deque[asyncio.Handle] = deque()
        self.wakes_at_s = 0.0
        self.dead = False
        self.fuse: tuple[int, Callable[[], None]] | None = None
        """callbacks that it may still run, and what happens then"""
        self.context = copy_context()
        self.context.run(ACTOR.set, self)


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """Hashed by number, so that sets of futures are walked in the same order at each replay."""

    def __init__(self, *, loop: Loop) -> None:
        self.number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task):  # type: ignore[type-arg]
    def __init__(self, coroutine: Any, *, loop: Loop, context: Context, **more: Any) -> None:
        self.number = next(loop.numbers)
        self.actor = context[ACTOR]
        super().__init__(coroutine, loop=loop, context=context, **more)

    def __hash__(self) -> int:
        return self.number


class Loop(asyncio.AbstractEventLoop):
    """What asyncio needs of a loop, on simulated time."""

    def __init__(self, random: Random, *, hesitation: float) -> None:
        """`hesitation`: how likely an actor is to be held up after a step."""
        self.random = random
        self.numbers = itertools.count(1)
        self.steps = 0
        self.errors: list[str] = []
        self.world = Actor("world")
        self._hesitation = hesitation
        self._now_s = 0.0
        self._hushed = False
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._actors: list[Actor] = [self.world]
        self._tasks: list[_Task] = []

    # ---- actors ----

    def actor(self, name: str, process: Any = None) -> Actor:
        actor = Actor(name, process)
        self._actors.append(actor)
        return actor

    def start(self, actor: Actor, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.create_task(coroutine, context=actor.context.copy())

    def freeze(self, actor: Actor, seconds: float) -> None:
        actor.wakes_at_s = max(actor.wakes_at_s, self._now_s + seconds)
        self._push(actor.wakes_at_s, asyncio.Handle(lambda: None, (), self, self.world.context.copy()))

    def bury(self, actor: Actor) -> None:
        actor.dead = True
        self._actors.remove(actor)

    def at(self, when_s: float, actor: Actor, callback: Callable[..., None], *args: Any) -> asyncio.Handle:
        """Have the actor run it then, or as soon as it can after that."""
        return self.call_at(when_s, callback, *args, context=actor.context.copy())

    # ---- running ----

    def run(self, until_s: float) -> None:
        """Let everything happen that happens before that time."""
        before = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(self)
        try:
            while not self.errors and self._step(until_s):
                pass
        finally:
            asyncio.events._set_running_loop(before)

    def _step(self, until_s: float) -> bool:
        now_s, random = self._now_s, self.random
        able = [actor for actor in self._actors if actor.ready and actor.wakes_at_s <= now_s]
        if not able:
            if not self._timers or self._timers[0][0] > until_s:
                self._now_s = until_s
                return False
            self._now_s, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                _actor_of(handle).ready.append(handle)
            return True
        actor = able[0] if len(able) == 1 else able[int(random.random() * len(able))]
        handle = actor.ready.popleft()
        if handle.cancelled():
            return True
        handle._run()
        self.steps += 1
        if actor.fuse is not None:
            left, blow = actor.fuse
            actor.fuse = (left - 1, blow) if left > 1 else None
            if actor.fuse is None:
                blow()
        if self._hesitation and random.random() < self._hesitation:
            self.freeze(actor, random.expovariate(200.0))
        return True

    def hush(self) -> None:
        """What is thrown away from here on breaks no promise."""
        self._hushed = True

    def end(self) -> None:
        """Cancel all that is left, the dead's included, so that no coroutine is thrown away half way."""
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(20):
                left = [task for task in self._tasks if not task.done()]
                for task in left:
                    task.cancel()
                actors = {id(actor): actor for actor in (*self._actors, *(task.actor for task in left))}
                for actor in actors.values():
                    while actor.ready:
                        handle = actor.ready.popleft()
                        if not handle.cancelled():
                            handle._run()
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if task.done() and not task.cancelled():
                    task.exception()
        finally:
            asyncio.events._set_running_loop(None)

    # ---- what asyncio calls ----

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context or copy_context())
        _actor_of(handle).ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context or copy_context())
        self._push(when, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, name=name, context=context or copy_context())
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._hushed and "never retrieved" not in context["message"]:
            self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _push(self, when_s: float, handle: asyncio.Handle) -> None:
        heapq.heappush(self._timers, (when_s, next(self.numbers), handle))


def _actor_of(handle: asyncio.Handle) -> Actor:
    return handle._context[ACTOR]  # type: ignore[attr-defined, no-any-return]
