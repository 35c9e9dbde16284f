"""The native half of an entry, part one: is this the call that the step was compiled for."""

from __future__ import annotations

from hybridml_compiler.targets.cpu.python_entry.block import (
    ARG,
    CAPTURED,
    CONSTANT,
    CONTEXT,
    EPOCH,
    FLOAT,
    column,
    field,
    row,
    word,
)
from hybridml_compiler.targets.cpu.python_entry.object_layout import ALIGNED, C_CONTIGUOUS, Layout


def fits(layout: Layout) -> str:
    """LLVM IR of a test whether the array has this exact type, descr and dims, and at least these flags."""
    return f"""
define internal i1 @fits(ptr %array, ptr %array.type, ptr %descr, i64 %nd, ptr %dims, i32 %flags) alwaysinline {{
entry:
{field("type", "%array", layout.type)}
{field("its.descr", "%array", layout.array_descr)}
{field("its.nd.32", "%array", layout.array_nd, "i32")}
{field("its.flags", "%array", layout.array_flags, "i32")}
{field("its.dims", "%array", layout.array_dims)}
  %its.nd = sext i32 %its.nd.32 to i64
  %set = and i32 %its.flags, %flags
  %same.type = icmp eq ptr %type, %array.type
  %same.descr = icmp eq ptr %its.descr, %descr
  %same.nd = icmp eq i64 %its.nd, %nd
  %same.flags = icmp eq i32 %set, %flags
  %both.1 = and i1 %same.type, %same.descr
  %both.2 = and i1 %same.nd, %same.flags
  %all = and i1 %both.1, %both.2
  br i1 %all, label %loop, label %no
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %end = icmp eq i64 %i, %nd
  br i1 %end, label %yes, label %next
next:
  %want.p = getelementptr i64, ptr %dims, i64 %i
  %have.p = getelementptr i64, ptr %its.dims, i64 %i
  %want = load i64, ptr %want.p
  %have = load i64, ptr %have.p
  %i.next = add i64 %i, 1
  %same = icmp eq i64 %want, %have
  br i1 %same, label %loop, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def guards(layout: Layout) -> str:
    """LLVM IR of a test whether this is the call that the step was compiled for; it puts the arguments' pointers in
    place."""
    return f"""
define internal i1 @epochs_hold(ptr %block) alwaysinline {{
entry:
{word("n_epochs")}
{word("epochs", "ptr")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %end = icmp eq i64 %i, %n_epochs
  br i1 %end, label %yes, label %next
next:
{row("%epochs", EPOCH, "%i", "row")}
{column("address", "%row", EPOCH, "address", "ptr")}
{column("seen", "%row", EPOCH, "seen", "ptr")}
  %now = load i64, ptr %address
  %value = load i64, ptr %seen
  %i.next = add i64 %i, 1
  %same = icmp eq i64 %now, %value
  br i1 %same, label %loop, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

; 1: every context variable holds what it did, or nothing; 0: not; -1: an exception is set.
define internal i32 @contexts_hold(ptr %block) {{
entry:
  %held = alloca ptr
{word("n_contexts")}
{word("contexts", "ptr")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next], [%i.next, %drop]
  %end = icmp eq i64 %i, %n_contexts
  br i1 %end, label %yes, label %get
get:
{row("%contexts", CONTEXT, "%i", "row")}
{column("variable", "%row", CONTEXT, "variable", "ptr")}
{column("expected", "%row", CONTEXT, "expected", "ptr")}
  %status = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %held)
  %failed = icmp slt i32 %status, 0
  br i1 %failed, label %error, label %next
next:
  %value = load ptr, ptr %held
  %i.next = add i64 %i, 1
  %unset = icmp eq ptr %value, null
  br i1 %unset, label %loop, label %drop
drop:
  %same = icmp eq ptr %value, %expected
  call void @Py_DecRef(ptr %value)
  br i1 %same, label %loop, label %no
yes:
  ret i32 1
no:
  ret i32 0
error:
  ret i32 -1
}}

define internal i1 @arguments_fit(ptr %block, ptr %args) alwaysinline {{
entry:
{word("n_args")}
{word("table", "ptr", "args")}
{word("tensor_type", "ptr")}
{word("array_type", "ptr")}
{word("float_type", "ptr")}
{word("array_slot")}
{word("n_nones")}
{word("nones", "ptr")}
{word("none", "ptr")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %constant], [%i.next, %number.fits], [%i.next, %tensor.fits]
  %end = icmp eq i64 %i, %n_args
  br i1 %end, label %yes, label %one
one:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
{field("type", "%arg", layout.type)}
{row("%table", ARG, "%i", "row")}
{column("kind", "%row", ARG, "kind")}
{column("expected", "%row", ARG, "expected", "ptr")}
{column("target", "%row", ARG, "target", "ptr")}
  %i.next = add i64 %i, 1
  switch i64 %kind, label %tensor [
    i64 {CONSTANT}, label %constant
    i64 {FLOAT}, label %number
  ]
constant:
  %same = icmp eq ptr %arg, %expected
  br i1 %same, label %loop, label %no
number:
  %is.float = icmp eq ptr %type, %float_type
  br i1 %is.float, label %number.fits, label %no
number.fits:
{field("double", "%arg", layout.float_value, "double")}
  store double %double, ptr %target
  br label %loop
tensor:
  %is.tensor = icmp eq ptr %type, %tensor_type
  br i1 %is.tensor, label %slots, label %no
slots:
  %k = phi i64 [0, %tensor], [%k.next, %slot]
  %slots.end = icmp eq i64 %k, %n_nones
  br i1 %slots.end, label %unwrap, label %slot
slot:
  %offset.p = getelementptr i64, ptr %nones, i64 %k
  %offset = load i64, ptr %offset.p
  %slot.p = getelementptr i8, ptr %arg, i64 %offset
  %held = load ptr, ptr %slot.p
  %k.next = add i64 %k, 1
  %is.none = icmp eq ptr %held, %none
  br i1 %is.none, label %slots, label %no
unwrap:
  %array.p = getelementptr i8, ptr %arg, i64 %array_slot
  %array = load ptr, ptr %array.p
  %empty = icmp eq ptr %array, null
  br i1 %empty, label %no, label %look
look:
{column("nd", "%row", ARG, "nd")}
{column("dims", "%row", ARG, "dims", "ptr")}
  %fits = call i1 @fits(ptr %array, ptr %array_type, ptr %expected, i64 %nd, ptr %dims, i32 {C_CONTIGUOUS | ALIGNED})
  br i1 %fits, label %tensor.fits, label %no
tensor.fits:
{field("data", "%array", layout.array_data)}
  store ptr %data, ptr %target
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}

; Every captured tensor holds the very array seen when the entry was built: 2 ns each, one branch in all.
define internal i1 @captured_hold(ptr %block) alwaysinline {{
entry:
{word("n_captured")}
{word("captured", "ptr")}
{word("array_slot")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %different = phi i64 [0, %entry], [%different.next, %next]
  %end = icmp eq i64 %i, %n_captured
  br i1 %end, label %out, label %next
next:
{row("%captured", CAPTURED, "%i", "row")}
{column("tensor", "%row", CAPTURED, "tensor", "ptr")}
{column("array", "%row", CAPTURED, "array")}
  %now.p = getelementptr i8, ptr %tensor, i64 %array_slot
  %now = load i64, ptr %now.p
  %change = xor i64 %now, %array
  %different.next = or i64 %different, %change
  %i.next = add i64 %i, 1
  br label %loop
out:
  %same = icmp eq i64 %different, 0
  ret i1 %same
}}
"""
