"""Settles the shapes that a model is converted for: static, gears, or ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from gepipe.errors import ConfigError
from gepipe.models.onnxfile import OnnxFile
from gepipe.models.options import ConvertOptions, Extent

#: Batch sizes of a model whose batch is open, where nobody says which.
DEFAULT_GEARS: Final = (1, 2, 4, 8)

Kind = Literal["static", "batch", "hw", "dims", "ranges"]


@dataclass(frozen=True)
class Shapes:
    """The shapes of a conversion.

    Attributes:
        kind: What varies.
        inputs: Input to extents: a number, -1 where a gear decides, or (lowest, highest).
        gears: Of each gear its numbers: (batch,), (height, width), or one for every -1.
        input_format: NCHW, NHWC or ND, as atc takes it.
        notes: What was decided for the user.
    """

    kind: Kind
    inputs: Mapping[str, tuple[Extent, ...]]
    gears: tuple[tuple[int, ...], ...]
    input_format: str
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the inputs as atc takes them in `--input_shape`."""
        return ";".join(
            f"{name}:{','.join(_extent(each) for each in shape)}"
            for name, shape in self.inputs.items()
        )


def _extent(extent: Extent) -> str:
    return f"{extent[0]}~{extent[1]}" if isinstance(extent, tuple) else str(extent)


def plan_shapes(model: OnnxFile, options: ConvertOptions) -> Shapes:
    """Settle the shapes of a conversion.

    Raises:
        ConfigError: The options do not fit the model, or leave something open.
    """
    inputs = _declared(model, options)
    form = _format(inputs)
    if any(isinstance(extent, tuple) for shape in inputs.values() for extent in shape):
        return _ranges(inputs, options, form)
    if options.dims:
        return _dims(inputs, options)
    if options.choices and not options.image_sizes:
        options = _chosen(inputs, options, form)
        if options.dims:
            return _dims(inputs, options)
    if options.image_sizes:
        return _image_sizes(inputs, options, form)
    return _batches(inputs, options, form)


def _declared(model: OnnxFile, options: ConvertOptions) -> dict[str, tuple[Extent, ...]]:
    """Return each input's extents, by the model or by the options; open ones as -1."""
    inputs: dict[str, tuple[Extent, ...]] = {
        tensor.name: tuple(each if isinstance(each, int) else -1 for each in tensor.shape)
        for tensor in model.inputs
    }
    for name, shape in options.input_shape:
        if name not in inputs:
            raise ConfigError(
                f"{model.path}: no input is called {name!r}; it has {', '.join(inputs)} (E10016)"
            )
        own = inputs[name]
        if own and len(own) != len(shape):
            raise ConfigError(
                f"{model.path}: input {name!r} has {len(own)} axes, {list(own)}; input_shape gives "
                f"{len(shape)} (E10012)"
            )
        for ours, theirs in zip(own, shape, strict=False):
            if isinstance(ours, int) and ours > 0 and theirs != ours:
                raise ConfigError(
                    f"{model.path}: input {name!r} is fixed to {list(own)}, which input_shape "
                    f"{_list(shape)} contradicts; export the model with open axes"
                )
        inputs[name] = shape
    if not inputs:
        raise ConfigError(f"{model.path}: the model has no inputs")
    for name, row in options.rows:
        if name not in inputs:
            raise ConfigError(
                f"{model.path}: shapes: no input is called {name!r}; it has {', '.join(inputs)}"
            )
        shape = inputs[name]
        if len(shape) != 1 + len(row) or any(
            own not in (-1, asked) for own, asked in zip(shape[1:], row, strict=True)
        ):
            raise ConfigError(
                f"{model.path}: shapes: a row of input {name!r} is {_list(shape[1:])}, which "
                f"{list(row)} does not fit"
            )
        inputs[name] = (*shape[:1], *row)
    if options.row and not (options.image_sizes or options.dims):
        for name, shape in inputs.items():
            if len(shape) == 1 + len(options.row):
                filled = zip(shape[1:], options.row, strict=True)
                inputs[name] = (*shape[:1], *(row if own == -1 else own for own, row in filled))
    return inputs


def _format(inputs: Mapping[str, Sequence[Extent]]) -> str:
    for shape in inputs.values():
        if len(shape) == 4:
            last = shape[1] not in (1, 3, 4) and shape[3] in (1, 3, 4)
            return "NHWC" if last else "NCHW"
    return "ND"


def _list(shape: Sequence[Extent]) -> str:
    return "[" + ", ".join("?" if each == -1 else _extent(each) for each in shape) + "]"


def _open(inputs: Mapping[str, Sequence[Extent]]) -> list[tuple[str, int]]:
    return [
        (name, axis)
        for name, shape in inputs.items()
        for axis, extent in enumerate(shape)
        if extent == -1
    ]


def _ranges(inputs: dict[str, tuple[Extent, ...]], options: ConvertOptions, form: str) -> Shapes:
    if options.gears or options.image_sizes or options.dims:
        raise ConfigError(
            "ranges of shapes and gears cannot be combined (atc: E10009); give one of them"
        )
    return Shapes("ranges", inputs, (), form)


def _chosen(
    inputs: Mapping[str, Sequence[Extent]], options: ConvertOptions, form: str
) -> ConvertOptions:
    """Return options that list the rows which the pre stage makes, as image sizes or dims."""
    wanted = _open(inputs)
    axes = [axis for _, axis in wanted]
    rows = [(0, *row) for row in options.choices]
    if len(inputs) != 1 or any(len(row) != len(shape) for row in rows for shape in inputs.values()):
        return options
    gears = options.gears or (options.default_gears if 0 in axes else ()) or (1,)
    sides = [2, 3] if form == "NCHW" else [1, 2]
    if form != "ND" and len(gears) == 1 and [axis for axis in axes if axis] == sides:
        sizes = [(row[sides[0]], row[sides[1]]) for row in rows]
        return replace(options, gears=gears, image_sizes=tuple(sorted(set(sizes))))
    groups = [
        tuple(row[axis] if axis else gear for axis in axes)
        for gear in (gears if 0 in axes else (1,))
        for row in rows
    ]
    return replace(options, gears=(), dims=tuple(sorted(set(groups))))


def _dims(inputs: dict[str, tuple[Extent, ...]], options: ConvertOptions) -> Shapes:
    wanted = _open(inputs)
    for group in options.dims:
        if len(group) != len(wanted):
            listed = ", ".join(f"{name}[{axis}]" for name, axis in wanted) or "none"
            raise ConfigError(
                f"dims: {list(group)} has {len(group)} numbers; expected one for each open extent "
                f"in order: {listed}"
            )
    return Shapes("dims", inputs, options.dims, "ND")


def _image_sizes(
    inputs: dict[str, tuple[Extent, ...]], options: ConvertOptions, form: str
) -> Shapes:
    batch = options.gears[0] if options.gears else 1
    first, second = (2, 3) if form == "NCHW" else (1, 2)
    sized = dict(inputs)
    found = False
    for name, shape in inputs.items():
        filled = [
            batch if axis == 0 and extent == -1 else extent for axis, extent in enumerate(shape)
        ]
        if len(filled) == 4 and filled[first] == filled[second] == -1:
            found = True
        elif -1 in filled:
            raise ConfigError(
                f"input {name!r} has open extents {_list(filled)} that are not its height and "
                "width; fix them with input_shape, or use dims"
            )
        if filled[0] != batch:
            raise _fixed_batch(name, filled)
        sized[name] = tuple(filled)
    if not found:
        raise ConfigError(
            "image sizes: no input has an open height and width; export the model with them open"
        )
    return Shapes("hw", sized, options.image_sizes, form)


def _batches(inputs: dict[str, tuple[Extent, ...]], options: ConvertOptions, form: str) -> Shapes:
    notes: tuple[str, ...] = ()
    gears = options.gears
    others = [(name, axis) for name, axis in _open(inputs) if axis]
    if others:
        name = others[0][0]
        example = ",".join("-1" if not axis else ("224" if each == -1 else _extent(each))
                           for axis, each in enumerate(inputs[name]))  # fmt: skip
        raise ConfigError(
            f"input {name!r} has open extents {_list(inputs[name])}; fix them, as with "
            f"--input-shape '{name}:{example}', or list what they may be with --image-sizes or "
            f"--dims (atc: E10018); in a pipeline: `backend: {{ge: {{shapes: {{{name}: "
            f"[{example.partition(',')[2].replace(',', ', ')}]}}}}}}`, or for pictures of several "
            "sizes `- letterbox: {sizes: [[height, width], …]}` at the end of its pre stage"
        )
    has_open = bool(_open(inputs))
    if not gears:
        if not has_open:
            return Shapes("static", inputs, (), form)
        gears = options.default_gears or DEFAULT_GEARS
        if not options.default_gears:
            listed = ", ".join(map(str, gears))
            notes = (f"the batch is open; made for {listed}, as no gears were asked for",)
    if len(gears) == 1:
        fixed = {
            name: tuple(gears[0] if extent == -1 else extent for extent in shape)
            for name, shape in inputs.items()
        }
        for name, shape in fixed.items():
            if shape[:1] != gears:
                raise _fixed_batch(name, shape)
        return Shapes("static", fixed, (), form)
    for name, shape in inputs.items():
        if shape[:1] != (-1,):
            raise _fixed_batch(name, shape)
    return Shapes("batch", inputs, tuple((gear,) for gear in gears), form, notes)


def _fixed_batch(name: str, shape: Sequence[Extent]) -> ConfigError:
    return ConfigError(
        f"input {name!r} has a fixed batch: {_list(shape)}; convert it without other batch sizes, "
        "or export the model with its first axis open (dynamic_axes in PyTorch)"
    )
