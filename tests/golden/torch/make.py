"""Writes the files of `torch.save` that tests/test_torch_files.py reads: `python make.py FOLDER`, where PyTorch is."""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model(torch.ones(4, 3)).sum().backward()
optimizer.step()
base = torch.arange(6.0).reshape(2, 3)
kinds = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
saved = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "epoch": 3,
    "lr": [0.1, (1, None, "x")],
    "base": base,
    "column": base[:, 1],
    "turned": base.T,
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "empty": torch.zeros(0, 3),
    "size": torch.Size([1, 2]),
    "kinds": {k: torch.tensor([1, 0, 2]).to(getattr(torch, k)) for k in kinds},
}
for name, zipped in (("zipped", True), ("before_1_6", False)):
    torch.save(saved, f"{sys.argv[1]}/{name}.pt", _use_new_zipfile_serialization=zipped)
torch.save({"u": torch.tensor([1, 2], dtype=torch.uint16)}, f"{sys.argv[1]}/uint16.pt")
torch.save(model, f"{sys.argv[1]}/module.pt")
