"""Training and inference for the architectures of `hybridml.models`, on data that packages ship or that is made here.

``python -m hybridml models`` lists them; ``python -m hybridml_examples.networks.train NAME`` trains one, in one style
or in both, and ``python -m hybridml_examples.networks.infer NAME --load FILE`` uses what was trained.

made.py         what all data sets are: samples made by their numbers, and what they are in words
images.py       scikit-learn's digits and its two photographs
text.py         Python's language reference
translation.py  dates and numbers in words -> digits
speech.py       words that espeak-ng speaks, spectrograms, waveforms out of them
ratings.py      who saw what, drawn from a stated law
measures.py     how good a model is on the data that test
uses.py         what a trained model does: classify, write, translate, transcribe, speak, rank, draw
tasks.py        the table: which data, which size, which measure, which use
arguments.py    the command lines
train.py        the script that trains
infer.py        the script that uses what was trained
listing.py      the table of architectures, and the command `models`
"""
