"""Programs as the first pages of PyTorch, JAX and Keras have them, written anew: only the import is changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PYTORCH = """
import hybridml as torch
from hybridml import nn
from hybridml.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
print(f"Using {device} device")


class Digits(Dataset):
    def __init__(self, n, transform=None):
        self.labels = torch.randint(0, 10, (n,))
        self.images = torch.rand(n, 1, 8, 8) * 0.1
        self.images[torch.arange(n), 0, self.labels // 2, self.labels % 2] += 2.0
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        image = self.images[idx]
        return (self.transform(image) if self.transform else image), self.labels[idx]


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(8 * 8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x):
        x = self.flatten(x)
        logits = self.linear_relu_stack(x)
        return logits


train_dataloader = DataLoader(Digits(512), batch_size=64, shuffle=True)
test_dataloader = DataLoader(Digits(128), batch_size=64)
for X, y in test_dataloader:
    print(f"Shape of X [N, C, H, W]: {X.shape}")
    print(f"Shape of y: {y.shape} {y.dtype}")
    break

model = NeuralNetwork().to(device)
print(model)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=5e-1)


def train(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 4 == 0:
            loss, current = loss.item(), (batch + 1) * len(X)
            print(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")


def test(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    num_batches = len(dataloader)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    test_loss /= num_batches
    correct /= size
    print(f"Accuracy: {(100*correct):>0.1f}%, Avg loss: {test_loss:>8f}")
    return correct


for t in range(10):
    train(train_dataloader, model, loss_fn, optimizer)
accuracy = test(test_dataloader, model, loss_fn)
assert accuracy > 0.9, accuracy

torch.save(model.state_dict(), "model.safetensors")
again = NeuralNetwork().to(device)
again.load_state_dict(torch.load("model.safetensors", weights_only=True))
again.eval()
x, y = Digits(1)[0]
with torch.no_grad():
    x = x.to(device)
    pred = again(x)
    predicted, actual = pred[0].argmax(0), y
    probabilities = nn.Softmax(dim=1)(pred)
    print(f'Predicted: "{predicted}", Actual: "{actual}", {probabilities.max(dim=1).values.item():.2f}')
assert torch.equal(pred, model(x)).all()
"""

TENSORS = """
import math
import numpy as np
import hybridml as torch

data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
x_np = torch.from_numpy(np.array(data))
x_ones = torch.ones_like(x_data)
x_rand = torch.rand_like(x_data, dtype=torch.float)
shape = (2, 3,)
print(torch.rand(shape), torch.ones(shape), torch.zeros(shape))
tensor = torch.rand(3, 4)
print(f"{tensor.shape} {tensor.dtype} {tensor.device}")
tensor = torch.ones(4, 4)
print(tensor[0], tensor[:, 0], tensor[..., -1])
tensor[:, 1] = 0
t1 = torch.cat([tensor, tensor, tensor], dim=1)
y1 = tensor @ tensor.T
y2 = tensor.matmul(tensor.T)
y3 = torch.rand_like(y1)
torch.matmul(tensor, tensor.T, out=y3) if False else None
z1 = tensor * tensor
z2 = tensor.mul(tensor)
agg_item = tensor.sum().item()
assert isinstance(agg_item, float) and torch.equal(y1, y2).all()
tensor.add_(5)
n = torch.ones(5).numpy()
assert n.sum() == 5

x = torch.ones(5)
y = torch.zeros(3)
w = torch.randn(5, 3, requires_grad=True)
b = torch.randn(3, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(z.grad_fn, loss.grad_fn)
loss.backward()
assert w.grad.size() == (5, 3) and b.grad.shape == (3,)
with torch.no_grad():
    z = torch.matmul(x, w) + b
assert not z.requires_grad

x = torch.linspace(-math.pi, math.pi, 2000, dtype=torch.float, device="cpu")
y = torch.sin(x)
p = torch.tensor([1, 2, 3])
xx = x.unsqueeze(-1).pow(p)
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for t in range(200):
    y_pred = model(xx)
    loss = loss_fn(y_pred, y)
    if t % 100 == 99:
        print(t, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
linear_layer = model[0]
print(f"y = {linear_layer.bias.item()} + {linear_layer.weight[:, 0].item()} x")
with torch.no_grad():
    for param in model.parameters():
        param -= 1e-6 * param.grad
model = torch.compile(model)
assert model(xx).shape == y.shape
"""

JAX = """
import hybridml as jnp
from hybridml import grad, jit, value_and_grad
import numpy as np


def selu(x, alpha=1.67, lmbda=1.05):
    return lmbda * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


x = jnp.arange(5.0)
print(selu(x))
fast = jit(selu)
assert jnp.allclose(fast(x), selu(x))


def sum_logistic(x):
    return jnp.sum(1.0 / (1.0 + jnp.exp(-x)))


x_small = jnp.arange(3.)
derivative_fn = grad(sum_logistic)
print(derivative_fn(x_small))
third = grad(jit(grad(jit(grad(sum_logistic)))))(1.0)
print(third)


def first_finite_differences(f, x, eps=1E-3):
    return jnp.array([(f(x + eps * v) - f(x - eps * v)) / (2 * eps) for v in jnp.eye(len(x))])


assert jnp.allclose(first_finite_differences(sum_logistic, x_small), derivative_fn(x_small), atol=1e-3)

key = np.random.default_rng(0)
W, b = jnp.array(key.normal(size=(3,)), dtype=jnp.float32), jnp.array(0.0)
inputs = jnp.array([[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]])
targets = jnp.array([True, True, False, True])


def loss(W, b):
    preds = 0.5 * (jnp.tanh((jnp.dot(inputs, W) + b) / 2) + 1)
    label_probs = preds * targets + (1 - preds) * (1 - targets)
    return -jnp.sum(jnp.log(label_probs))


@jit
def update(W, b):
    value, (dW, db) = value_and_grad(loss, (0, 1))(W, b)
    return W - 0.1 * dW, b - 0.1 * db, value


first = loss(W, b)
for _ in range(50):
    W, b, last = update(W, b)
assert last < first
y = jnp.zeros((3, 3), dtype=jnp.float32).at[1, :].set(1.0)
assert y.sum() == 3.0
"""

KERAS = """
import numpy as np
import hybridml as hm
from hybridml.nn import BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, ReLU, Sequential

hm.manual_seed(1)
x_train = np.random.default_rng(0).random((256, 16, 16)).astype("float32")
y_train = (x_train[:, :8].mean((1, 2)) > x_train[:, 8:].mean((1, 2))).astype("int64")
x_train = np.expand_dims(x_train, 1)

model = Sequential(
    Conv2d(1, 8, kernel_size=(3, 3)), ReLU(), MaxPool2d(kernel_size=(2, 2)), BatchNorm2d(8), Flatten(), Dropout(0.1),
    Linear(8 * 7 * 7, 2),
)
loss = hm.nn.CrossEntropyLoss()
optimizer = hm.optim.Adam(model.parameters(), lr=3e-3)


@hm.trace
def train_step(x, y):
    optimizer.zero_grad()
    value = loss(model(x), y)
    value.backward()
    optimizer.step()
    return value


for epoch in range(15):
    for k in range(0, 256, 64):
        value = train_step(hm.asarray(x_train[k : k + 64]), hm.asarray(y_train[k : k + 64]))
model.eval()
predictions = model(hm.asarray(x_train)).argmax(axis=-1)
accuracy = (predictions == hm.asarray(y_train)).float().mean().item()
assert accuracy > 0.8, accuracy
"""

PROGRAMS = {"PyTorch's quickstart": PYTORCH, "PyTorch's tensors": TENSORS, "JAX's": JAX, "Keras'": KERAS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_quickstart(name: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[name], encoding="utf-8")
    found = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert not found.stderr, "nothing warns"
