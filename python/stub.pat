# Read by nanobind's stub generator: where the names in the signatures come from.
_rmsnorm.__prefix__:
    from rmsnorm._types import (
        Array, EpsilonPlacement, GateOrder, NormInput, Result, RopeLayout, Rounding, Scaling)
