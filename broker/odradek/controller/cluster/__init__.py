"""The controller of a cluster: pure machines over one context, and an executor that performs their effects."""
