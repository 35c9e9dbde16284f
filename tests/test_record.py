"""Records have the methods of data classes, made when they are first called."""

import copy
import pickle
import threading
from dataclasses import dataclass, field
from inspect import signature
from types import FrameType, TracebackType
from typing import ClassVar

import pytest

from hybridml_compiler.errors import ArgumentError, user_frame
from hybridml_compiler.record import fields, record, replace


@record
class Point:
    """A point."""

    x: int
    y: int = 0


@record
class Named(Point):
    name: str = field(default="", repr=False)
    tags: list[str] = field(default_factory=list)


@record(frozen=False)
class Open:
    value: object = None


@record(frozen=False, eq=False)
class Alone:
    value: int


def test_a_record_is_made_from_its_fields() -> None:
    point = Point(1, y=2)
    assert (point.x, point.y, Point(1).y, Point.__doc__) == (1, 2, 0, "A point.")
    assert Point.__init__.__qualname__ == "Point.__init__"
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_errors_name_the_line_that_made_a_record() -> None:
    @record
    class Checked:
        x: int

        def __post_init__(self) -> None:
            raise ArgumentError("no")

    for _ in range(2):  # while its method is made, and after that
        with pytest.raises(ArgumentError) as caught:
            exec(compile("Checked(1)", "user.py", "exec"), {"Checked": Checked})
        where = user_frame(innermost(caught.value.__traceback__, 2))
        assert where is not None and where.f_code.co_filename == "user.py"


def innermost(traceback: TracebackType | None, beyond: int) -> FrameType:
    """The frame that is `beyond` the one that raised."""
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames[-beyond]


def test_records_of_equal_fields_are_equal() -> None:
    @dataclass(frozen=True)
    class Twin:
        x: int
        y: int = 0

    assert Point(1) == Point(1, 0) != Point(1, 1)
    assert hash(Point(1)) == hash(Point(1, 0)) == hash(Twin(1))
    assert Point(1) != Twin(1) and Point(1) != Named(1)
    assert Alone(1) != Alone(1)
    assert Open(1) == Open(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open(1))


def test_a_record_is_shown_by_its_fields() -> None:
    assert repr(Point(1)) == "Point(x=1, y=0)"
    assert repr(Named(1, name="a", tags=["b"])) == "Named(x=1, y=0, tags=['b'])"
    own = Open()
    own.value = own
    assert repr(own) == "Open(value=...)"


def test_fields_are_inherited_and_factories_called_for_each() -> None:
    one, other = Named(1), Named(1)
    one.tags.append("a")
    assert other.tags == [] and list(fields(Named)) == ["x", "y", "name", "tags"]
    assert replace(one, x=5, name="b") == Named(5, 0, "b", ["a"])
    match one:
        case Named(x, y):
            assert (x, y) == (1, 0)


def test_methods_of_the_class_stay() -> None:
    @record
    class Own:
        x: int

        def __post_init__(self) -> None:
            self.twice = 2 * self.x

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        __hash__ = None  # type: ignore[assignment]

    assert Own(2).twice == 4 and repr(Own(2)) == "own" and Own(1) == Own(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Own(1))


def test_a_field_without_a_default_cannot_follow_one_with_a_default() -> None:
    with pytest.raises(TypeError, match=r"field 'y' of .*Wrong has no default and follows 'x', which has one"):

        @record
        class Wrong:
            x: int = 0
            y: int


@pytest.mark.parametrize(
    "default, message",
    [
        ([], "would share the default"),
        (field(default={}), "would share the default"),
        (field(default=0, compare=False), "no more"),
        (field(default=0, hash=False), "no more"),
        (field(default=0, init=False), "no more"),
        (field(default=0, kw_only=True), "no more"),
    ],
)
def test_what_a_record_would_ignore_is_refused(default: object, message: str) -> None:
    with pytest.raises(TypeError, match=f"field 'x' of .*Wrong: .*{message}"):

        @record
        class Wrong:
            x: object = default


def test_class_variables_are_no_fields() -> None:
    @record
    class Counted:
        x: int
        made: ClassVar = 0
        known: ClassVar[dict[int, int]] = {}

    assert list(fields(Counted)) == ["x"] and repr(Counted(1)).endswith("Counted(x=1)")


def test_classes_that_derive_from_a_record() -> None:
    class Derived(Named):
        def __init__(self, x: int) -> None:
            super().__init__(x, name="derived")
            self.more = 1

    first, second = Derived(1), Derived(2)
    assert (first.name, second.x, first.more) == ("derived", 2, 1) and first != Named(1, name="derived")
    assert first == Derived(1) and repr(first).endswith("Derived(x=1, y=0, tags=[])")


def test_records_are_copied_and_pickled() -> None:
    named = Named(1, tags=["a"])
    assert pickle.loads(pickle.dumps(named)) == copy.deepcopy(named) == named


def test_threads_may_make_the_first_one_at_once() -> None:
    @record
    class Late:
        x: int

    made: list[Late] = []
    barrier = threading.Barrier(8)

    def run() -> None:
        barrier.wait()
        made.append(Late(1))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [Late(1)] * 8


def test_fields_may_have_the_names_of_what_makes_them() -> None:
    @record
    class Odd:
        missing: int
        f1: int
        make2: list[int] = field(default_factory=lambda: [1])
        f0: int = 5
        self_: int = 6

    assert Odd(1, 2) == Odd(1, 2, [1], 5, 6) == Odd(f1=2, missing=1, f0=5)
    assert repr(Odd(1, 2)).endswith("Odd(missing=1, f1=2, make2=[1], f0=5, self_=6)")


def test_records_of_as_many_fields_keep_their_names_apart() -> None:
    @record
    class Line:
        start: int
        stop: int = 7

    assert (Line(1).start, Line(1).stop, Point(1).y) == (1, 7, 0)
    assert list(signature(Line).parameters) == ["start", "stop"] and list(signature(Point).parameters) == ["x", "y"]
    assert Line.__init__.__module__ == __name__ and Line.__init__.__qualname__.endswith("Line.__init__")
    with pytest.raises(TypeError, match=r"Line.__init__\(\) got an unexpected keyword argument 'x'"):
        Line(x=1)  # type: ignore[call-arg]
