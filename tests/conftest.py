"""What every test shares: hypothesis' budgets. Holds no fixtures of single modules."""

from hypothesis import HealthCheck, settings

# No deadline per example: on a shared core a pause of the machine is not a fault of the code.
settings.register_profile("quick", max_examples=100, deadline=None)
# A case that took an hour to find must not be lost: its blob, printed, replays it anywhere.
settings.register_profile(
    "fuzz", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")
