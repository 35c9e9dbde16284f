"""The native half of an entry, part two: arrays for the results, and the tensors round them."""

from __future__ import annotations

from hybridml_compiler.targets.cpu.python_entry.block import DEFAULT, OUTPUT, WORD, column, field, row, word
from hybridml_compiler.targets.cpu.python_entry.object_layout import ALIGNED, C_CONTIGUOUS, OWNS_DATA, WRITEABLE, Layout


def results(layout: Layout) -> str:
    """Output arrays are fresh, or such as the caller lends."""
    reusable = C_CONTIGUOUS | ALIGNED | WRITEABLE | OWNS_DATA
    return f"""
; Of memory that NumPy gets from the output's handler, where it has one.
define internal ptr @fresh(ptr %block, ptr %row) {{
entry:
{word("array_type", "ptr")}
{column("descr", "%row", OUTPUT, "descr", "ptr")}
{column("nd", "%row", OUTPUT, "nd")}
{column("dims", "%row", OUTPUT, "dims", "ptr")}
{column("handler", "%row", OUTPUT, "handler", "ptr")}
  %nd.32 = trunc i64 %nd to i32
  %usual = icmp eq ptr %handler, null
  br i1 %usual, label %make, label %set
set:
  %current = call ptr @PyDataMem_SetHandler(ptr %handler)
  %unset = icmp eq ptr %current, null
  br i1 %unset, label %error, label %make
make:
  %before = phi ptr [null, %entry], [%current, %set]
  call void @Py_IncRef(ptr %descr)                 ; NewFromDescr steals it, also when it fails
  %array = call ptr @PyArray_NewFromDescr(ptr %array_type, ptr %descr, i32 %nd.32, ptr %dims, ptr null, ptr null,
                                          i32 0, ptr null)
  br i1 %usual, label %out, label %back
back:
  %ours = call ptr @PyDataMem_SetHandler(ptr %before)
  call void @Py_DecRef(ptr %before)
  call void @Py_DecRef(ptr %ours)
  br label %out
out:
  ret ptr %array
error:
  ret ptr null
}}

; A new reference to an array for this output, or null with an exception set. An array that is lent is taken if the
; reference of the loan, which ends here, is one of two (a view holds its base, a buffer its exporter), if no weak
; reference knows it, and if nobody changed its shape, type or flags in place.
define internal ptr @output(ptr %block, ptr %row) {{
entry:
{column("lent.word", "%row", OUTPUT, "lent", "ptr")}
  %never = icmp eq ptr %lent.word, null
  br i1 %never, label %make, label %ask
ask:
  %lent = load ptr, ptr %lent.word
  store ptr null, ptr %lent.word
  %none = icmp eq ptr %lent, null
  br i1 %none, label %make, label %count
count:
{word("array_type", "ptr")}
{column("descr", "%row", OUTPUT, "descr", "ptr")}
{column("nd", "%row", OUTPUT, "nd")}
{column("dims", "%row", OUTPUT, "dims", "ptr")}
  %fits = call i1 @fits(ptr %lent, ptr %array_type, ptr %descr, i64 %nd, ptr %dims, i32 {reusable})
  br i1 %fits, label %held, label %refuse
held:
{field("references", "%lent", layout.refcount, "i32")}
{field("weak", "%lent", layout.array_weakrefs)}
  %two = icmp ule i32 %references, 2
  %unknown = icmp eq ptr %weak, null
  %free = and i1 %two, %unknown
  br i1 %free, label %take, label %refuse
take:
  ret ptr %lent
refuse:
  call void @Py_DecRef(ptr %lent)
  br label %make
make:
  %new = call ptr @fresh(ptr %block, ptr %row)
  ret ptr %new
}}

; Outputs 0 .. n-1 into their rows and the pointer table; the number that succeeded.
define internal i64 @make_outputs(ptr %block) {{
entry:
{word("n_outputs")}
{word("outputs", "ptr")}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %made]
  %end = icmp eq i64 %i, %n_outputs
  br i1 %end, label %out, label %next
next:
{row("%outputs", OUTPUT, "%i", "row")}
  %array = call ptr @output(ptr %block, ptr %row)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %out, label %made
made:
{column("target", "%row", OUTPUT, "target", "ptr")}
{field("data", "%array", layout.array_data)}
  store ptr %data, ptr %target
  %current = getelementptr i8, ptr %row, i64 {WORD * OUTPUT.index("current")}
  store ptr %array, ptr %current
  %i.next = add i64 %i, 1
  br label %loop
out:
  ret i64 %i
}}

; Give back the arrays of outputs %from .. %to-1.
define internal void @drop_outputs(ptr %block, i64 %from, i64 %to) {{
entry:
{word("outputs", "ptr")}
  br label %loop
loop:
  %i = phi i64 [%from, %entry], [%i.next, %next]
  %end = icmp uge i64 %i, %to
  br i1 %end, label %out, label %next
next:
{row("%outputs", OUTPUT, "%i", "row")}
{column("array", "%row", OUTPUT, "current", "ptr")}
  call void @Py_DecRef(ptr %array)
  %i.next = add i64 %i, 1
  br label %loop
out:
  ret void
}}

; A tensor round the array of output %i (whose reference it takes), or null with an exception set and the array kept.
define internal ptr @wrap(ptr %block, i64 %i) {{
entry:
{word("outputs", "ptr")}
{word("tensor_type", "ptr")}
{word("array_slot")}
{word("n_defaults")}
{word("defaults", "ptr")}
{row("%outputs", OUTPUT, "%i", "row")}
{column("array", "%row", OUTPUT, "current", "ptr")}
  %tensor = call ptr @PyType_GenericAlloc(ptr %tensor_type, i64 0)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %out, label %fill
fill:
  %slot = getelementptr i8, ptr %tensor, i64 %array_slot
  store ptr %array, ptr %slot
  br label %loop
loop:
  %k = phi i64 [0, %fill], [%k.next, %next]
  %end = icmp eq i64 %k, %n_defaults
  br i1 %end, label %out, label %next
next:
{row("%defaults", DEFAULT, "%k", "default")}
{column("offset", "%default", DEFAULT, "offset")}
{column("value", "%default", DEFAULT, "value", "ptr")}
  call void @Py_IncRef(ptr %value)
  %place = getelementptr i8, ptr %tensor, i64 %offset
  store ptr %value, ptr %place
  %k.next = add i64 %k, 1
  br label %loop
out:
  ret ptr %tensor
}}

; One tensor, a tuple of several, or None for none.
define internal ptr @result(ptr %block) {{
entry:
{word("n_outputs")}
{word("none", "ptr")}
  switch i64 %n_outputs, label %several [
    i64 0, label %nothing
    i64 1, label %single
  ]
nothing:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
single:
  %only = call ptr @wrap(ptr %block, i64 0)
  %only.failed = icmp eq ptr %only, null
  br i1 %only.failed, label %lost, label %good
good:
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %n_outputs)
  %tuple.failed = icmp eq ptr %tuple, null
  br i1 %tuple.failed, label %lost, label %loop
loop:
  %i = phi i64 [0, %several], [%i.next, %put]
  %end = icmp eq i64 %i, %n_outputs
  br i1 %end, label %full, label %next
next:
  %tensor = call ptr @wrap(ptr %block, i64 %i)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %broken, label %put
put:
  %status = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %tensor)
  %i.next = add i64 %i, 1
  br label %loop
full:
  ret ptr %tuple
broken:
  call void @Py_DecRef(ptr %tuple)
  br label %lost
lost:
  %from = phi i64 [0, %single], [0, %several], [%i, %broken]
  call void @drop_outputs(ptr %block, i64 %from, i64 %n_outputs)
  ret ptr null
}}
"""
