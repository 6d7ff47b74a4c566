"""Every error of a call's parameters at once, each with its place.

Duty: msgspec stops at the first error; here a value that a codec decoded without types is walked against the declared
types and all errors are listed. msgspec itself judges every leaf, so what is accepted here is what it accepts.
Prohibitions: never called on the hot path; never raises for any value; never repeats a refused value (`wording`
speaks); work is bounded (errors, depth, steps), since a peer may send as many bad calls as it likes.

`wording` finds the words, `checks` walks a value, `compiling` makes the checks of a type; each uses only those before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec

from rpcfast.validation import wording
from rpcfast.validation.checks import ERROR_LIMIT, Stop, Walk, members_of, parts_of
from rpcfast.validation.compiling import plan_of
from rpcfast.validation.wording import from_message

__all__ = ["ERROR_LIMIT", "ParameterLike", "explain", "from_message"]

Hook = Callable[[type, Any], Any]


class ParameterLike(Protocol):
    """What a declared parameter must tell."""

    @property
    def name(self) -> str:
        """What callers write."""
        ...

    @property
    def type(self) -> Any:
        """What it was annotated with."""
        ...

    @property
    def required(self) -> bool:
        """Whether a call without it is wrong."""
        ...

    @property
    def keyword_only(self) -> bool:
        """Whether a call by position cannot give it."""
        ...


def explain(
    parameters: Sequence[ParameterLike],
    value: object,
    *,
    dec_hook: Hook | None = None,
    strict: bool = True,
    str_keys: bool = True,
    builtin_types: Iterable[type] = (),
) -> list[dict[str, Any]]:
    """List every error of `value`, the decoded parameters of a call: a list by position, a dict by name.

    `dec_hook`, `strict`, `str_keys` and `builtin_types` mean what they mean to `msgspec.convert`. JSON needs none but
    the hook; msgpack needs `str_keys=False` and `builtin_types=(bytes, bytearray, memoryview)`. A pydantic model is
    read by the hook, or by its own `model_validate` when there is no hook.

    At most `ERROR_LIMIT` errors are listed; where more were found, or the value is too large to look at all of it, a
    last entry of type `too_many_errors` says so.

    Returns an empty list if nothing is wrong. Never raises. Safe to call from several threads at once.
    """
    convert = partial(
        msgspec.convert,
        dec_hook=dec_hook or _default_hook,
        strict=strict,
        str_keys=str_keys,
        builtin_types=tuple(builtin_types),
    )
    walk = Walk(convert)
    with suppress(Stop):
        if (parts := parts_of(value)) is not None:
            _by_position(walk, parameters, parts)
        elif (members := members_of(value)) is not None:
            _by_name(walk, parameters, members)
        else:
            got = wording.received(value)
            walk.add("arguments_type", f"Expected a list of parameters or an object of named ones, got {got}")
    if walk.cut:
        walk.errors.append(wording.entry((), "too_many_errors", "Too much to check: later errors are not listed"))
    return walk.errors


def _by_position(walk: Walk, parameters: Sequence[ParameterLike], values: Sequence[object]) -> None:
    most = sum(not parameter.keyword_only for parameter in parameters)
    for parameter, value in zip(parameters, values, strict=False):
        if parameter.keyword_only:
            walk.add("unexpected_positional_argument", "Must be passed by name, not by position", parameter.name)
        else:
            _parameter(walk, parameter, value)
    for index in range(len(parameters), len(values)):
        walk.add("unexpected_positional_argument", f"At most {most} can be passed by position", index)
    for parameter in parameters[len(values) :]:
        if parameter.required:
            walk.add("missing", "Missing", parameter.name)


def _by_name(walk: Walk, parameters: Sequence[ParameterLike], values: Mapping[Any, object]) -> None:
    for parameter in parameters:
        if parameter.name in values:
            _parameter(walk, parameter, values[parameter.name])
        elif parameter.required:
            walk.add("missing", "Missing", parameter.name)
    names = {parameter.name for parameter in parameters}
    for name in (name for name in values if name not in names):
        walk.add("unexpected_keyword_argument", "No parameter has this name", name)


def _parameter(walk: Walk, parameter: ParameterLike, value: object) -> None:
    """Check one parameter; a refusal whose cause the walk cannot find is told in msgspec's own words."""
    error = walk.refusal(value, parameter.type)
    if error is None:
        return
    known = len(walk.errors)
    walk.loc, walk.chunked = [parameter.name], 0
    try:
        plan_of(parameter.type).check(walk, value)
    except (Stop, RecursionError):
        walk.cut = True
    walk.loc = [parameter.name]
    if len(walk.errors) == known:
        walk.tell(error)
    walk.loc = []


def _default_hook(cls: type, value: object) -> object:
    """Read a pydantic model (told without importing pydantic); leave anything else for msgspec to refuse."""
    return cls.model_validate(value) if hasattr(cls, "__pydantic_validator__") else value  # type: ignore[attr-defined]
