"""Leaves out of a video the groups of pictures (GOPs) that have no wanted frame, undecoded.

    packets ──▶ [ key, leading…, others… ] [ key, … ] ──▶ to the decoder: those of GOPs with a
                 a GOP                                      wanted frame, up to the last one of them

A GOP has the frames that are shown from its key frame up to that of the next GOP. Its packets are
its key frame's and those behind, and those that lead the next GOP, as where that is an open one:
they come behind its key frame, are shown before it, and need both GOPs. Which number and time each
frame has shows from the packets; where one of them is not surely a single frame, all from its GOP
on is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gepipe.video.packetkind import PacketKind

#: What packets of a GOP may take before they have to be decoded.
_HELD_BYTES_MAX: Final = 64 << 20
_HELD_MAX: Final = 20_000


class Planned(NamedTuple):
    """A frame that is known before it is decoded.

    Attributes:
        number: Its number in the video.
        time: In seconds.
        wanted: Whether it was chosen.
    """

    number: int
    time: float
    wanted: bool


@dataclass
class _Gop:
    key: Any
    leading: list[Any] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)
    shown: set[int] = field(default_factory=set)  # time stamps, without those of `leading`
    last: int = 0  # the latest of them
    head_fed: bool = False  # whether the decoder had its key and what leads it


class Gops:
    """Feeds a decoder.

    Attributes:
        planned: Frames to come, by time stamp.
        unplanned: Time stamps of frames that were decoded because wanted ones need them, and whose
            turn to be shown is later; none of them once it is no longer sure what comes.
        is_sure: Whether those are all that come. Once false, frames that come and are not among
            them have to be counted.
        is_over: Whether a frame came behind which none is wanted.
    """

    def __init__(
        self,
        packets: Iterable[Any],
        look: Callable[[Any], PacketKind],
        plan: Callable[[int], Planned | None],
    ) -> None:
        """Read nothing yet.

        Args:
            packets: The packets of the video; an empty one without a time stamp at the end.
            look: Tells what a packet holds.
            plan: Takes the time stamp of the next frame as it is shown, and tells what is known of
                it; None if no further one is wanted.
        """
        self.planned: dict[int, Planned] = {}
        self.unplanned: set[int] = set()
        self.is_sure = True
        self._packets = iter(packets)
        self._look = look
        self._plan = plan
        self._gop: _Gop | None = None
        self._next: _Gop | None = None  # of which only what leads it has come
        self._decoding = False  # whether the decoder has had all before this GOP
        self.is_over = False
        self._held_bytes = self._held = 0

    def feed(self) -> Iterator[Any]:
        """Yield packets to decode, False where the decoder is to begin anew, True as life sign."""
        for packet in self._packets:
            yield True
            if not packet or (not packet.size and packet.pts is None):
                yield from self._finish(packet)
                return
            kind = self._look(packet)
            if self._ends_head(kind, packet):
                yield from self._close()
                if self.is_over:
                    return
            if not self._take(kind, packet):
                self.is_sure = False
                self.unplanned.clear()
                yield from self._waiting()
                yield packet
                yield from self._packets
                return

    def _ends_head(self, kind: PacketKind, packet: Any) -> bool:
        """Whether all has come of what leads the next GOP."""
        return self._next is not None and (
            kind in (PacketKind.KEY, PacketKind.HIDDEN)
            or (kind is PacketKind.FRAME and packet.pts > self._next.key.pts)
        )

    def _take(self, kind: PacketKind, packet: Any) -> bool:
        """Put a packet where it belongs; False if that is not sure."""
        self._held += 1
        self._held_bytes += packet.size
        if (
            kind is PacketKind.UNSURE
            or self._held > _HELD_MAX
            or self._held_bytes > _HELD_BYTES_MAX
        ):
            return False
        if kind is PacketKind.KEY:
            return self._begin(packet)
        if self._gop is None:
            return False
        if kind is PacketKind.HIDDEN:
            self._gop.rest.append(packet)
            return True
        return self._add(self._gop, kind, packet)

    def _begin(self, packet: Any) -> bool:
        pts, is_shown = packet.pts, not packet.is_discard
        if self._gop is not None and pts <= self._gop.last:
            return False
        gop = _Gop(packet, shown={pts} if is_shown else set(), last=pts)
        if self._gop is None:
            self._gop = gop
        else:
            self._next = gop
        return True

    def _add(self, gop: _Gop, kind: PacketKind, packet: Any) -> bool:
        pts = packet.pts
        if pts <= gop.key.pts or pts in gop.shown:
            return False
        # What is shown earlier than its time stamp says is of a codec whose order is another one.
        last = gop.last if self._next is None else self._next.key.pts
        if pts == last or (pts > last and (kind is PacketKind.B_FRAME or self._next is not None)):
            return False
        if not packet.is_discard:
            gop.shown.add(pts)
        if self._next is not None:
            self._next.leading.append(packet)
        else:
            gop.rest.append(packet)
            gop.last = max(gop.last, pts)
        return True

    def _close(self) -> Iterator[Any]:
        """Decide on the GOP, all frames of which are known, and go on to the next."""
        gop, following = self._gop, self._next
        assert gop is not None
        wanted = self._choose(gop)
        packets = [] if gop.head_fed else [gop.key]
        if self._decoding and not gop.head_fed:
            packets += gop.leading
        packets += gop.rest
        if following is not None and wanted.intersection(each.pts for each in following.leading):
            packets += [following.key, *following.leading]
            following.head_fed = True
        last = max(
            (place for place, packet in enumerate(packets) if packet.pts in wanted),
            default=-1,
        )
        fed = packets[: last + 1]
        self.unplanned.update(
            each.pts for each in fed if not (each.is_discard or each.pts in self.planned)
        )
        yield from fed
        if last >= 0:
            self._decoding = True
        if self._decoding and (self.is_over or last + 1 < len(packets)):
            yield False
            self._decoding = False
            if following is not None:
                following.head_fed = False
        if not self._decoding:
            self.planned.clear()
            self.unplanned.clear()
        self._gop, self._next = following, None
        self._held = self._held_bytes = 0
        if following is not None:
            held = (following.key, *following.leading)
            self._held, self._held_bytes = len(held), sum(packet.size for packet in held)

    def _choose(self, gop: _Gop) -> set[int]:
        wanted = set()
        for pts in sorted(gop.shown):
            planned = self._plan(pts)
            if planned is None:
                self.is_over = True
                break
            self.planned[pts] = planned
            self.unplanned.discard(pts)
            if planned.wanted:
                wanted.add(pts)
        return wanted

    def _waiting(self) -> Iterator[Any]:
        """Yield all that was held back."""
        if (gop := self._gop) is not None:
            if not gop.head_fed:
                yield gop.key
                yield from gop.leading if self._decoding else ()
            yield from gop.rest
            if self._next is not None:
                yield self._next.key
                yield from self._next.leading

    def _finish(self, last: Any) -> Iterator[Any]:
        while self._gop is not None and not self.is_over:
            yield from self._close()
        if self._decoding:
            yield last
