"""Load a candidate, the function under test, and call it with NumPy arrays in any framework.

A ``Candidate`` runs in this process; ``process.Isolated`` has the same methods and runs one in a
worker process. Nothing here imports the oracle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from errno import EFBIG
from functools import partial
from gc import disable, enable, isenabled
from itertools import chain
from math import isnan, nan
from os import urandom
from typing import Any

from benchmarks.verify import wire
from benchmarks.verify.cases import MODELS, Place, each_once, objects
from benchmarks.verify.conversion import (
    FRAMEWORKS,
    framework_of,
    from_numpy,
    poison,
    refill,
    to_numpy,
)
from benchmarks.verify.earlier import (
    COMPARED_BYTES,
    EarlierResults,
    are_in_memory,
    arrays_content,
    share_memory,
    size_of,
)
from benchmarks.verify.errors import BackwardError, CandidateError
from benchmarks.verify.frameworks import NotAnArrayError
from benchmarks.verify.layouts import RETURNED, of_arrays
from benchmarks.verify.loading import InContext, importable, loaded, padding_argument
from benchmarks.verify.moves import move, views_of
from benchmarks.verify.originals import np, own_builtins
from benchmarks.verify.same import assert_same_objects, assert_unchanged
from benchmarks.verify.settings import changed, settings_originals, settings_reader

own_builtins(globals())

TIME_LIMIT, MEMORY_LIMIT, FILE_LIMIT = "time limit", "memory limit", "limit of what it may print"
LIMITS = (TIME_LIMIT, MEMORY_LIMIT, FILE_LIMIT)
"""Kinds of failures that end the conformance test of a candidate."""

LARGEST_FILE = 2**30
"""Maximum size of a file that a worker may write, including its output, in bytes."""

BACKWARD = "backward"
"""The kind of an exception in a backward pass."""

BATCH = "batch"
"""The kind of a result without the batch axis."""


class BaseCandidate:
    """The interface of a candidate; subclasses implement ``_call`` and ``_gradient``.

    Attributes:
        framework: one of ``conversion.FRAMEWORKS``.
        device: of PyTorch's tensors.
        source: the function, or where to import it from.
        name: in messages.
        padding: the argument of ``PADDING`` that it has, or an empty string.
        calls: number of calls in its current worker process.
        once: how its first call of all differed from the same call later; empty if it did not.
        firsts: of the calls by which its framework was detected the name, itself and its answer.
        rejected: itself in other frameworks, whose arrays it refuses or was not written for.
        meanwhile: steps of the test's own work, while a worker process works.
    """

    calls = 1
    once = ""
    firsts: tuple[tuple[str, Callable[[], Any], Any], ...] = ()
    rejected: tuple[BaseCandidate, ...] = ()
    meanwhile: Iterator[object] = iter(())
    framework: str
    device: str
    source: Any
    name: str
    padding: str

    def restart(self) -> None:
        """Start a new worker process, if the candidate runs in one."""

    def close(self) -> None:
        """End the worker process, if there is one."""

    def __call__(self, *arguments: Any, layout: str = "plain", keyword: str = "") -> Any:
        """Call the function with copies of the arguments; returns NumPy arrays.

        Args:
            arguments: those of the operator, NumPy arrays and plain values.
            layout: of arrays in memory, see ``frameworks``.
            keyword: the keyword of the last argument, if it is not positional.

        Raises:
            CandidateError: the function raised, returned no array, or changed an argument or a
                global setting.
        """
        (result,) = self.call_each([arguments], layout=layout, keyword=keyword)
        return result

    def call_each(
        self,
        cases: Sequence[Sequence[Any]],
        *,
        layout: str = "plain",
        keyword: str = "",
        reuse_arrays: bool = False,
    ) -> list[Any]:
        """Consecutive calls; with ``reuse_arrays`` the argument objects are reused and refilled.

        Raises:
            CandidateError: as for one call.
        """
        return [
            self._call(list(case), layout, keyword, reuse_arrays and i > 0)
            for i, case in enumerate(cases)
        ]

    def gradient(
        self,
        arguments: Sequence[Any],
        weights: Any,
        places: Sequence[Place],
        *,
        uses: int = 1,
        layout: str = "plain",
        then: Sequence[Any] | None = None,
        keyword: str = "",
    ) -> tuple[list[Any], list[Any]]:
        """Gradients of the sum of ``weights * output`` with respect to each of ``places``.

        With ``uses=2`` the function is called twice on the same arguments, the second time with
        twice the weights, before the backward pass, which runs twice, again with all weights
        negated (if it raises RuntimeError then, after both calls again): the first's gradients are
        returned, then the second's negated. With ``then`` it is called on these arguments, too.
        ``layout`` is that of the arrays and of the upstream gradient.

        Returns:
            The gradients, and the output of each call, then those of all others, which are on
            ``then``, or of the same arguments.

        Raises:
            CandidateError: the function raised, or its output is not differentiable.
        """
        also = None if then is None else list(then)
        of = list(arguments), weights, list(places), keyword, uses, layout, also
        *gradients, outputs = self._gradient(*of)
        return gradients, outputs

    def _call(self, case: list[Any], layout: str, keyword: str, reuse: bool) -> Any:
        """One call; with ``reuse`` the last call's objects are refilled with ``case``."""
        raise NotImplementedError

    def _gradient(
        self,
        arguments: list[Any],
        weights: Any,
        places: list[Place],
        keyword: str,
        uses: int,
        layout: str,
        then: list[Any] | None,
    ) -> list[Any]:
        """The gradients, then the list of outputs."""
        raise NotImplementedError


class Candidate(BaseCandidate):
    """A function in this process, in one framework and on one device.

    Attributes:
        send: called with each result as soon as it is read; of gradients with those of each
            backward pass.
        result_framework: the framework of its last result, if any; "torch" if it is compiled.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        framework: str = "numpy",
        device: str = "cpu",
        folder: str | None = None,
        arguments: Sequence[str] | None = None,
        copies: bool = True,
    ) -> None:
        """Wrap ``function``; modules in ``folder`` can be imported while it runs.

        Without ``copies``, arrays are passed on without a copy if possible.

        Raises:
            TypeError: it cannot be called with ``arguments``.
        """
        self.function, self.framework, self.device = function, framework, device
        self.source, self.folder = function, folder
        self.name = getattr(function, "__name__", "candidate")
        self.padding = "" if arguments is None else padding_argument(function, arguments)
        self._within = function.within if type(function) is InContext else nullcontext
        self._arrays, self._copies = FRAMEWORKS[framework](device), copies
        self._settings, self.generators = settings_reader()
        self._outside: dict[str, Any] = {}
        self._seeds: dict[str, Any] = {}
        self._given: list[Any] = []
        self._returned: Any = None
        self._factor, self._refills = 1.0, 0
        self._earlier = EarlierResults(self._content)
        of_arrays = partial(arrays_content, self._arrays)
        self._earlier_given, self._earlier_backward = (EarlierResults(of_arrays) for _ in range(2))
        self._called = set[Callable[..., Any]]()
        self.result_framework = ""
        self.send: Callable[[Any], object] = lambda result: None

    def _call(self, case: list[Any], layout: str, keyword: str, reuse: bool) -> Any:
        self._assert_no_setting_is(self._changed_outside())
        # a candidate that keeps its last result or arguments for the next call finds NaN there, or
        # other numbers, which show what leaves NaN as it is
        self._factor = 1 + urandom(1)[0] / 256 if isnan(self._factor) else nan
        left = [] if reuse else self._given
        poison(self._arrays, [self._returned, *left], self._factor)
        last, self._returned = self._returned, None
        if reuse:
            move(self._arrays, self._given, case, layout, last)
        if last is not None and not share_memory(self._arrays, last, self._given):
            self._earlier.add(last)
        if not reuse and sum(map(size_of, self._given)) < COMPARED_BYTES:
            self._earlier_given.add(self._given)
        if reuse:
            self._refills += 1
            refill(self._arrays, self._given, case, self._refills % 7 in (1, 4), layout)
        else:
            self._given = self._converted(case, layout)
        call, parts = partial(self.invoke, self._given, keyword), [*map(objects, self._given)]
        read = self._read
        self._returned, result, setting = self._run(self._watched, call, layout, read)
        # a result that is an argument is in the same memory if the arguments are
        is_argument = reuse and share_memory(self._arrays, last, self._given)
        if not is_argument and share_memory(self._arrays, self._returned, last):
            raise CandidateError("returned the memory of its last result again", "state")
        self.result_framework = framework_of(self._returned)
        if not layout.startswith(RETURNED):  # what a candidate has returned is freed, but parts
            self._returned = views_of(self._arrays, self._returned)
        if hasattr(self.function, "_torchdynamo_orig_callable"):
            self.result_framework = "torch"  # torch.compile returns NumPy's arrays for NumPy's
        assert_unchanged(self._after(self._given, case), case, keyword)
        assert_same_objects(self._given, parts, keyword)
        if not all(map(self._arrays.is_plain, chain.from_iterable(map(objects, self._given)))):
            raise CandidateError("required a gradient of its arguments, or set one", "in place")
        for what, of in (("the result", self._earlier), ("an argument", self._earlier_given)):
            if of.has_changed():
                raise CandidateError(f"wrote into {what} of an earlier call", "state")
        self._assert_no_setting_is(setting or self._changed_outside())
        return result

    def _assert_no_setting_is(self, name: str) -> None:
        if name:
            raise CandidateError(f"changed the global setting {name}", "state")

    def _changed_outside(self) -> str:
        """The settings that have changed since the last time, outside of calls.

        What converts a result may change them, or what frees it, or a thread. In this process
        other code may, too.
        """
        before, self._outside = self._outside, {} if self._copies else self._settings(False)
        return changed(before, self._outside) if before else ""

    def _watched(
        self, call: partial[Any], layout: str, read: Callable[[Any], Any] = lambda returned: None
    ) -> tuple[Any, Any, str]:
        """The result of a call, what is ``read`` of it, and the global settings that it changed."""
        # a call that sets one thread changes nothing where there is one: the first has more
        is_first = call.func not in self._called
        self._called.add(call.func)
        threads = self._arrays.several_threads() if is_first else nullcontext()
        with threads, self._arrays.mode(layout):
            before = self._settings()
            returned = call()
            result = read(returned)
            after = self._settings()
        if returned is None:
            raise NotAnArrayError("None")
        seeds = {name: before[name] for name in self._seeds}
        said = changed(self._seeds, seeds) or changed(before, after)
        # what converts or frees a result may seed; in this process other code may, too
        self._seeds = {} if self._copies else {name: after[name] for name in self.generators}
        return returned, result, said

    def _read(self, returned: Any) -> Any:
        """A result as NumPy arrays, read and sent before anything else is called: what is called
        here a candidate may have replaced, or may compute in it.
        """
        collects = isenabled()
        disable()  # what is collected may compute, too
        try:
            result = to_numpy(self._arrays, returned)
            self.send(result)
        finally:
            if collects:
                enable()
        return result

    def _converted(self, case: Sequence[Any], layout: str = "plain") -> list[Any]:
        def convert(value: Any) -> Any:
            return from_numpy(self._arrays, value, layout, self._copies)

        return each_once(convert, case)

    def _after(self, given: Sequence[Any], case: Sequence[Any]) -> list[Any]:
        """The arguments after a call, as NumPy arrays.

        Those still in the case's memory are the case's own: the test process, whose memory it is,
        sees whether that has changed.
        """

        def now(value: Any, before: Any) -> Any:
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                return {key: now(item, before.get(key)) for key, item in value.items()}
            is_array = not self._copies and isinstance(before, np.ndarray)
            if is_array and self._arrays.is_view(value, before):
                return before
            return value if isinstance(value, MODELS) else self._argument(value)

        return list(map(now, given, case))

    def _content(self, result: Any) -> bytes:
        """A result as bytes; empty if it cannot be sent."""
        with suppress(CandidateError, TypeError):
            return wire.dump(self._run(to_numpy, self._arrays, result))
        return b""

    def _argument(self, value: Any) -> Any:
        """An argument after a call, as NumPy arrays; lists as they are."""
        is_data = isinstance(value, Mapping) or hasattr(value, "dtype")
        return to_numpy(self._arrays, value) if is_data else value

    def _gradient(
        self,
        arguments: list[Any],
        weights: Any,
        places: list[Place],
        keyword: str,
        uses: int,
        layout: str,
        then: list[Any] | None,
    ) -> list[Any]:
        self._assert_no_setting_is(self._changed_outside())
        given = self._converted(arguments, of_arrays(layout))
        also = None if then is None else self._converted(then, of_arrays(layout))
        before = []
        if layout == RETURNED:  # as a state is that begins another graph
            before.append(self._call(arguments, "no_grad", keyword, False))
            move(self._arrays, given, arguments, layout, self._returned)
            refill(self._arrays, given, arguments, False, layout)
        parts = [*map(objects, given)]
        returned: list[Any] = []

        def read(result: Any) -> Any:
            returned.extend(self._arrays.detached(result))
            return self._read(result)

        call = partial(self._backward, given, keyword, places, weights, read, uses, layout, also)
        found, _, setting = self._run(self._watched, call, "plain")
        for case, values in ((arguments, given), (then, also)):
            if case is not None and values is not None:
                assert_unchanged(self._after(values, case), case, keyword)
        assert_same_objects(given, parts, keyword)
        if self._earlier_backward.has_changed():
            raise CandidateError("wrote into a result, or a gradient, of an earlier call", "state")
        are_arguments = are_in_memory(self._arrays, returned, [*given, *(also or ())])
        others = [x for x, is_one in zip(returned, are_arguments, strict=True) if not is_one]
        self._earlier_backward.add(others)
        self._assert_no_setting_is(setting or self._changed_outside())
        *gradients, outputs = found
        return [*gradients, [*outputs, *before]]

    def _backward(
        self, given: list[Any], keyword: str, places: Sequence[Place], weights: Any, *how: Any
    ) -> list[Any]:
        return self._arrays.gradient(
            lambda *case: self.invoke(case, keyword), given, places, weights, *how
        )

    def prepare(
        self, arguments: Sequence[Any], keyword: str, places: Sequence[Place] = (), weights: Any = 0
    ) -> None:
        """Convert the arguments of a call for ``run_prepared``; see ``gradient``.

        Without a copy if possible, so that they can be overwritten (``Isolated.overwrite``).
        """
        given = [from_numpy(self._arrays, value, copy=self._copies) for value in arguments]
        self.prepared = given, keyword, places, weights

    def run_prepared(self) -> Any:
        """Call the function; with places its gradients come before its result, in NumPy arrays."""
        given, keyword, places, weights = self.prepared
        if places:
            read = partial(to_numpy, self._arrays)
            *found, (output,) = self._run(self._backward, given, keyword, places, weights, read)
            self.answer = [*found, output]
        else:
            self.answer = self._run(to_numpy, self._arrays, self._run(self.invoke, given, keyword))
        return self.answer

    def answer_again(self) -> Any:
        """The last result of ``run_prepared``."""
        return self.answer

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function(self, *arguments)``, which `Isolated` runs in the worker process."""
        return function(self, *arguments)

    def invoke(self, case: Sequence[Any], keyword: str) -> Any:
        """The function's own result; the last argument is passed by ``keyword``, if any."""
        *rest, last = case
        return self.function(*rest, **{keyword: last}) if keyword else self.function(*case)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            # an overflow shows in the result; of a treatment that is rare, a change is detected
            errors = np.errstate(all="call", call=_ignore)
            with importable(self.folder), self._within(), errors:
                return function(*arguments)
        except NotAnArrayError as error:
            raise CandidateError(f"returned {error}, expected an array", "not an array") from error
        except BaseException as error:
            if self._copies and isinstance(error, KeyboardInterrupt):
                raise  # Ctrl-C, which does not reach a worker process
            in_backward = isinstance(error, BackwardError)
            if in_backward and error.__cause__:
                error = error.__cause__
            kind, said = type(error).__name__, ""
            with suppress(Exception):
                said = " / ".join(str(error).strip().splitlines()[:3])[:1000]
                said = said.encode(errors="backslashreplace").decode()
            full = isinstance(error, MemoryError) or re.search(r"(allocate|out of) memory", said)
            is_long = not self._copies and getattr(error, "errno", None) == EFBIG
            of_limit = MEMORY_LIMIT if full else FILE_LIMIT if is_long else ""
            raise CandidateError(
                f"raised {kind}{said and f': {said}'}",
                of_limit or (BACKWARD if in_backward else f"raised {kind}"),
            ) from error


def _ignore(error: str, flag: int) -> None:
    """What NumPy calls at an overflow."""


def load(
    where: str,
    framework: str = "numpy",
    device: str = "cpu",
    folder: str | None = None,
    copies: bool = True,
) -> Candidate:
    """The candidate at ``package.module:callable`` or ``path/file.py:callable``.

    Raises:
        InputError: there is no such module, file or callable, or importing it raised.
    """
    settings_originals()
    function, folder = loaded(where, folder)
    if type(function) is InContext:  # called as by everybody
        function = function.__call__
    return Candidate(function, framework, device, folder, copies=copies)
