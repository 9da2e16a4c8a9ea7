"""Work in steps, for the handlers of requests: see `odradek.stepwise`, which the controller also uses."""

from odradek.stepwise import MUST_GO_ON, Pace, Steps, Stepwise, never, ordered_in_steps

__all__ = ["MUST_GO_ON", "Pace", "Steps", "Stepwise", "never", "ordered_in_steps"]
