"""Tolerances of records, times, counts and reports; of numbers of layers see the kit's."""

from benchmarks.verify.tolerances import SMOOTHED

# mappings are options of pytest.approx, or of torch.testing.assert_close
PERCENT = {"abs": 100 * SMOOTHED}  # the same times 100, as scores are printed
KEPT = {"abs": 1e-6}  # means of what is kept to six decimals, half of the last and as much again
KEPT_PERCENT = {"abs": 1e-4}  # the same times 100, as scores are printed
JPEG = 2  # of 255: how far the best quality of JPEG may be from an even colour
PRINTED_FLOPS = 1e-3  # relative: operations against the three or four digits that Table VI prints
COUNTED = {"abs": 0.02}  # counted bytes against the power of a size that they grow with
TIMES = {"rel": 1e-9}  # ratios of times by logarithms and exponentials, in another order
EXPONENTS = {"abs": 1e-9}  # slopes of logarithms against the power that they are of
SIMULATED = {"rel": 0.02}  # times of simulated processes against what they stand for
CHAINED = {"rel": 0.05}  # products of some such ratios
SCHEDULED = {"rel": 1e-4}  # training times whose steps round to whole numbers
SCHEDULED_TWICE = {"rel": 1e-3}  # the same of two stages
SHOWN = {"rel": 6e-4}  # a number as reports show it, to three digits
HALF = 1 + 1e-9  # a mean against half a unit of the last digit that is shown
SHOWN_ERROR = {"rel": 1e-3}  # errors and operations, as pages show them
# effects of claims against those of records, which keep so many digits
CLAIMED = {"rel": 1e-4, "abs": 1e-4}
EFFECTS = {"abs": 1e-9}  # differences of means, in another order
RESIDUAL = {"rel": 0.1}  # the standard deviation of 3,600 draws
BETWEEN = {"rel": 0.5}  # the standard deviation of 60 draws, beside their noise
DEVIATIONS = 6  # standard deviations: what is drawn against its expectation
