"""What `gepipe model` does and shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gepipe.cli.text import count, duration, harmless, print_error, print_out, size
from gepipe.errors import ConfigError
from gepipe.models import options as asked
from gepipe.models.aipp import Split, split_for_aipp
from gepipe.models.atc import shown
from gepipe.models.convert import Converted, convert, copy_to
from gepipe.models.inspection import Inspection, inspect
from gepipe.models.plan import Plan, plan_conversion
from gepipe.models.store import Store

if TYPE_CHECKING:
    from gepipe.models.store import Entry


@dataclass(frozen=True)
class ConvertRequest:
    """The arguments of `gepipe model convert`, as they were written."""

    model: Path
    soc: str
    gears: str | None
    image_sizes: str | None
    dims: str | None
    input_shape: str | None
    precision: str
    aipp_from: Path | None
    aipp_order: Literal["rgb", "bgr"] | None
    output_type: str
    output: Path | None
    timeout: str
    extra: tuple[str, ...]
    show: bool
    as_json: bool


def convert_model(request: ConvertRequest) -> int:
    """Convert a model and say what was done; return the exit code."""
    from gepipe.spec.units import parse_duration

    try:
        timeout_s = parse_duration(request.timeout)
    except ValueError as error:
        raise ConfigError(f"--timeout: {error}") from None
    if not timeout_s:
        raise ConfigError("--timeout: expected more than 0")
    split = _split(request)
    plan = plan_conversion(request.model, _options(request, split), only_show=request.show)
    output = request.output or request.model.with_suffix(".om")
    if output.suffix != ".om":
        raise ConfigError(f"--output {output}: expected a name that ends in .om")
    if output.resolve() == request.model.resolve():
        raise ConfigError(f"{output} would be overwritten; say where to with --output")
    if request.show:
        _show_command(plan, output, as_json=request.as_json)
        return 0
    say = print_error if request.as_json else print_out
    for note in plan.notes:
        say(f"note: {harmless(note)}")
    done = convert(plan, timeout_s=timeout_s, say=lambda text: say(harmless(text)))
    copy_to(done.path, output)
    if request.as_json:
        print_out(json.dumps(_plain(done, output, split)))
    else:
        _say_done(done, output, split)
    return 0


def _options(request: ConvertRequest, split: Split | None) -> asked.ConvertOptions:
    return asked.ConvertOptions(
        soc=request.soc,
        gears=asked.parse_gears(request.gears) if request.gears is not None else (),
        image_sizes=asked.parse_image_sizes(request.image_sizes)
        if request.image_sizes is not None
        else (),
        dims=asked.parse_dims(request.dims) if request.dims is not None else (),
        input_shape=asked.parse_input_shape(request.input_shape)
        if request.input_shape is not None
        else (),
        precision=request.precision,
        output_type=request.output_type,
        aipp=None if split is None else split.aipp,
        extra=request.extra,
    )


def _split(request: ConvertRequest) -> Split | None:
    if request.aipp_from is None:
        if request.aipp_order is not None:
            raise ConfigError("--aipp-order goes with --aipp-from")
        return None
    from gepipe.spec.load import load

    legs = load(request.aipp_from).legs
    if len(legs) > 1:  # the operators are those before the model that is converted
        own = [leg for leg in legs if _is_model(leg.infer.model, request.model)]
        if len(own) != 1:
            models = ", ".join(f"{leg.infer.name}: {leg.infer.model}" for leg in legs)
            raise ConfigError(
                f"--aipp-from: {request.aipp_from}: has several models ({models}); expected one of "
                f"them to be {request.model}"
            )
        legs = (own[0],)
    return split_for_aipp(legs[0].pre.ops, order=request.aipp_order)


def _is_model(named: Path | None, file: Path) -> bool:
    return named is not None and named.resolve() == file.resolve()


def _show_command(plan: Plan, output: Path, *, as_json: bool) -> None:
    config = None if plan.aipp is None else plan.aipp.config()
    command = plan.command(output.with_suffix(""), None if config is None else Path("aipp.cfg"))
    if as_json:
        print_out(json.dumps({"command": command, "aipp": config, "soc": plan.soc}))
        return
    for note in plan.notes:
        print_out(f"# {harmless(note)}")
    if config is not None:
        print_out(f"cat > aipp.cfg <<'END'\n{config}END")
    print_out(harmless(shown(command)) if command else "# the emulator needs no atc")


def _say_done(done: Converted, output: Path, split: Split | None) -> None:
    how = (
        f"in {duration(done.seconds)}" if done.is_new else "converted before, taken from the cache"
    )
    print_out(harmless(f"{output}: {size(output.stat().st_size)} for {done.soc}, {how}"))
    if not done.is_new and done.command:
        print_out(harmless(f"it was made with: {done.command}"))
    if split is not None:
        print_out(
            "the model takes 8-bit pixels (uint8, NHWC) now; in the pre stage of the pipeline:"
        )
        for line in _edits(split):
            print_out(f"  {harmless(line)}")


def _edits(split: Split) -> Iterator[str]:
    for before, after in split.changed:
        yield f"write `{after.title}` in place of `{before.title}`"
    for op in split.dropped:
        yield f"drop `{op.title}`"


def _plain(done: Converted, output: Path, split: Split | None) -> dict[str, Any]:
    return {
        "output": str(output), "soc": done.soc, "cached": not done.is_new, "key": done.key,
        "seconds": round(done.seconds, 3), "nbytes": output.stat().st_size,
        "command": done.command, "notes": list(done.notes),
        "pipeline_edits": [] if split is None else list(_edits(split)),
    }  # fmt: skip


def show_model(file: Path, *, as_json: bool) -> int:
    """Show what a model file says of itself; return the exit code."""
    found = inspect(file)
    if as_json:
        print_out(json.dumps(found.to_plain()))
        return 0
    for line in _lines(found):
        print_out(harmless(line))
    return 0


def _lines(found: Inspection) -> Iterator[str]:
    yield f"{found.path}: {found.format}, {size(found.nbytes)}"
    for word, side in (("takes", found.inputs), ("makes", found.outputs)):
        for tensor in side or ():
            yield f"{word}  {tensor}"
    if found.gears is not None:
        kind, values = found.gears
        words = {"batch": "batch sizes", "hw": "image sizes", "dims": "dims"}[kind]
        yield f"gears  {words} " + ", ".join("x".join(map(str, value)) for value in values)
    for name, value in found.facts.items():
        if name == "partitions":
            for part in value:
                yield f"part   {part['kind']}: {size(part['nbytes'])} at {part['offset']}"
        elif value not in (None, "", [], {}, False):
            yield f"{name.replace('_', ' ')}: {_words(name, value)}"
    for note in found.notes:
        yield f"note: {note}"


def _words(name: str, value: Any) -> str:
    if value is True:
        return "yes"
    if name.endswith("_bytes"):
        return size(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return str(value)


def list_cache(*, as_json: bool) -> int:
    """List the converted models that are kept; return the exit code."""
    store = Store()
    entries = store.entries()
    total = sum(entry.nbytes for entry in entries)
    if as_json:
        listed = [
            {**entry.facts, "key": entry.key, "path": str(entry.path), "used": entry.used,
             "in_use": entry.in_use}
            for entry in entries
        ]  # fmt: skip
        print_out(
            json.dumps(
                {
                    "folder": str(store.folder), "nbytes": total,
                    "limit_bytes": store.limit_bytes, "models": listed,
                }
            )
        )  # fmt: skip
        return 0
    for entry in entries:
        print_out(harmless(_entry_line(entry)))
    print_out(
        harmless(
            f"{count(len(entries), 'model')}, {size(total)} of at most {size(store.limit_bytes)} "
            f"in {store.folder}"
        )
    )
    return 0


def _entry_line(entry: Entry) -> str:
    facts = entry.facts
    made = f"{facts.get('soc')} {facts.get('shapes')}"
    if facts.get("gears"):
        made += " gears " + ";".join(",".join(map(str, gear)) for gear in facts["gears"])
    age = duration(max(0.0, time.time() - entry.used))
    used = "in use" if entry.in_use else f"used {age} ago"
    return f"{entry.key[:12]}  {size(entry.nbytes):>10}  {used}  {facts.get('model')} for {made}"


def clear_cache() -> int:
    """Remove the converted models that are kept; return the exit code."""
    removed, left = Store().clear()
    freed = size(sum(entry.nbytes for entry in removed))
    print_out(f"{count(len(removed), 'model')} removed, {freed}")
    if left:
        print_out(f"{count(len(left), 'model')} left: in use by running processes")
    return 0
