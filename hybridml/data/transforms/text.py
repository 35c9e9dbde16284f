"""Text as tensors: tokens, their numbers, padding."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.tensor import Tensor
from ..collate import default_collate
from .pixels import Transform

# torchtext's "basic_english": what is replaced, in this order.
_ENGLISH = (
    (r"\'", " '  "), (r"\"", ""), (r"\.", " . "), (r"<br \/>", " "), (r",", " , "), (r"\(", " ( "), (r"\)", " ) "),
    (r"\!", " ! "), (r"\?", " ? "), (r"\;", " "), (r"\:", " "), (r"\s+", " "),
)  # fmt: skip
_ENGLISH_RULES = tuple((re.compile(pattern), words) for pattern, words in _ENGLISH)


def basic_english(text: str) -> list[str]:
    """Splits text into lower-case words and punctuation, as torchtext's tokenizer of that name does.

    >>> basic_english("It's here, now!")
    ['it', "'", 's', 'here', ',', 'now', '!']
    """
    text = text.lower()
    for pattern, words in _ENGLISH_RULES:
        text = pattern.sub(words, text)
    return text.split()


class RegexTokenizer(Transform):
    r"""Tokenizer by a regular expression: words and single signs, unless another `pattern` is given.

    >>> RegexTokenizer(lowercase=True)("Don't stop.")
    ['don', "'", 't', 'stop', '.']
    """

    def __init__(self, pattern: str = r"\w+|[^\w\s]", lowercase: bool = False) -> None:
        self.pattern, self.lowercase = pattern, lowercase

    def __call__(self, text: str) -> list[str]:
        return re.findall(self.pattern, text.lower() if self.lowercase else text)


class CharTokenizer(Transform):
    """Tokenizer of single characters.

    >>> CharTokenizer()("abc")
    ['a', 'b', 'c']
    """

    def __call__(self, text: str) -> list[str]:
        return list(text)


class Vocabulary:
    """Numbers of tokens, and tokens of numbers.

    `vocab[token]` is a number, `vocab(tokens)` a list of them; a token that is not there is `default_index`, and
    raises KeyError without one. `lookup_tokens` is the way back. ArgumentError where a token comes twice.

    >>> vocab = Vocabulary(["<pad>", "<unk>", "a", "b"], default_index=1)
    >>> vocab(["b", "c"]), vocab.lookup_tokens([2, 3]), len(vocab)
    ([3, 1], ['a', 'b'], 4)
    """

    def __init__(self, tokens: Iterable[str], default_index: int | None = None) -> None:
        self.tokens = list(tokens)
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        if len(self.numbers) != len(self.tokens):
            twice = next(token for token, count in Counter(self.tokens).items() if count > 1)
            raise ArgumentError(f"Vocabulary: the token {twice!r} comes twice")
        self.default_index = default_index

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __getitem__(self, token: str) -> int:
        number = self.numbers.get(token, self.default_index)
        if number is None:
            raise KeyError(f"{token!r} is not in the vocabulary; give it a default_index, of an <unk>")
        return number

    def __call__(self, tokens: Iterable[str]) -> list[int]:
        return [self[token] for token in tokens]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, default_index={self.default_index})"

    def set_default_index(self, index: int | None) -> None:
        """Sets the number of tokens that are not there."""
        self.default_index = index

    def lookup_indices(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of tokens."""
        return self(tokens)

    def lookup_token(self, index: int) -> str:
        """The token of a number; IndexError where there is none."""
        if not 0 <= index < len(self):
            raise IndexError(f"Vocabulary: {index} is no number of its {len(self)} tokens")
        return self.tokens[index]

    def lookup_tokens(self, indices: Iterable[int]) -> list[str]:
        """The tokens of numbers."""
        return [self.lookup_token(int(index)) for index in indices]

    def get_itos(self) -> list[str]:
        """All tokens, by their numbers."""
        return list(self.tokens)

    def get_stoi(self) -> dict[str, int]:
        """The numbers of all tokens."""
        return dict(self.numbers)


def build_vocab_from_iterator(
    iterator: Iterable[Iterable[str]],
    min_freq: int = 1,
    specials: Sequence[str] = (),
    special_first: bool = True,
    max_tokens: int | None = None,
) -> Vocabulary:
    """The vocabulary of texts that are lists of tokens: the most frequent first, equal ones in alphabetical order.

    Tokens that come fewer than `min_freq` times are left out; `specials` come first or last, and count in `max_tokens`.

    >>> build_vocab_from_iterator([["b", "a"], ["b"]], specials=["<unk>"]).get_itos()
    ['<unk>', 'b', 'a']
    """
    counts = Counter(token for tokens in iterator for token in tokens)
    for token in specials:
        counts.pop(token, None)
    ordered = sorted((token for token in counts if counts[token] >= min_freq), key=lambda t: (-counts[t], t))
    if max_tokens is not None:
        ordered = ordered[: max(0, max_tokens - len(specials))]
    return Vocabulary([*specials, *ordered] if special_first else [*ordered, *specials])


class Truncate(Transform):
    """The first `max_seq_len` of a sequence.

    >>> Truncate(2)([5, 6, 7])
    [5, 6]
    """

    def __init__(self, max_seq_len: int) -> None:
        self.max_seq_len = max_seq_len

    def __call__(self, sequence: Any) -> Any:
        return sequence[: self.max_seq_len]


class PadCollate(Transform):
    """A `collate_fn` that pads sequences of different lengths: batches are their entries, and the lengths of `key`.

    Sequences are lists of numbers, arrays or tensors, padded along the first axis with `padding_value` to the longest,
    or to a multiple of `multiple` (a traced step has a program for each few lengths then). Samples are sequences, or
    tuples or dicts of which the entries `keys` are padded (tuples: the first) and the others collated. The result is
    (padded, lengths), ((padded, ...), lengths) or {..., "lengths": lengths} with the lengths of the first of them.

    >>> padded, lengths = PadCollate()([[1, 2, 3], [4]])
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    >>> (tokens, labels), lengths = PadCollate(padding_value=9)([([1], 0), ([2, 3], 1)])
    >>> tokens.tolist(), labels.tolist()
    ([[1, 9], [2, 3]], [0, 1])
    """

    def __init__(self, padding_value: float = 0, keys: Sequence[Any] | None = None, multiple: int = 1) -> None:
        if multiple < 1:
            raise ArgumentError(f"PadCollate: multiple is a whole number from 1 on, got {multiple!r}")
        self.padding_value, self.keys, self.multiple = padding_value, keys, multiple

    def __call__(self, batch: Sequence[Any]) -> Any:
        first = batch[0]
        if isinstance(first, Mapping):
            keys = list(first)[:1] if self.keys is None else list(self.keys)
            made = {key: self._entry([sample[key] for sample in batch], key in keys) for key in first}
            return made | {"lengths": _lengths([sample[keys[0]] for sample in batch])}
        if isinstance(first, tuple):
            places = [0] if self.keys is None else list(self.keys)
            columns = [self._entry(list(c), k in places) for k, c in enumerate(zip(*batch, strict=True))]
            return tuple(columns), _lengths([sample[places[0]] for sample in batch])
        return self._padded(batch), _lengths(batch)

    def _entry(self, column: list[Any], is_sequence: bool) -> Any:
        return self._padded(column) if is_sequence else default_collate(column)

    def _padded(self, sequences: Sequence[Any]) -> Tensor:
        rows = [np.asarray(sequence) for sequence in sequences]
        longest = -(-max(map(len, rows)) // self.multiple) * self.multiple
        kinds = [row.dtype for row in rows if row.size]  # an empty list says no dtype
        dtype = np.result_type(*kinds) if kinds else np.dtype(np.int64)
        if dtype == np.float64 and isinstance(sequences[0], list | tuple):
            dtype = xp.get_default_dtype()
        filled = np.full((len(rows), longest, *rows[0].shape[1:]), self.padding_value, dtype)
        for target, row in zip(filled, rows, strict=True):
            target[: len(row)] = row
        return xp.asarray(filled)


def _lengths(sequences: Sequence[Any]) -> Tensor:
    return xp.asarray(np.array([len(sequence) for sequence in sequences], np.int64))
