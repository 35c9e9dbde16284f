"""Pipeline parallel: a model in stages, one in each process, through which the parts of a batch go one after the other.

Names are those of PyTorch's `torch.distributed.pipelining`.

cut.py        `pipeline`: a chain of modules as stages of about equal cost
stage.py      `PipelineStage`: the forward and the backward of one micro-batch in a stage, and what neighbours exchange
actions.py    the order of forwards and backwards in a stage, and when they happen
schedules.py  `ScheduleGPipe` and `Schedule1F1B`: a batch through the pipeline
"""
