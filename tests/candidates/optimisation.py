"""Right candidates of updates in NumPy, and with ``slip`` an easy mistake in each."""

import numpy as np


def gradient_descent(theta, gradients, alpha, slip=False):
    """Slip: the sum over examples."""
    return theta - alpha * (gradients.sum(0) if slip else gradients.mean(0))


def clip_gradients(gradients, threshold, slip=False):
    """Slip: a norm for each parameter."""
    norms = {name: np.sqrt((g * g).sum()) for name, g in gradients.items()}
    whole = np.sqrt(sum(norm**2 for norm in norms.values()))
    return {
        name: g * threshold / max(norms[name] if slip else whole, threshold)
        for name, g in gradients.items()
    }


def radam(theta, gradients, learning_rates, beta_1, beta_2, epsilon, published, slip=False):
    """Slip: Adam, without rectification."""
    m, v, out = 0 * theta, 0 * theta, []
    limit = 2 / (1 - beta_2) - 1
    for t, (g, lr) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
        first, second = 1 - beta_1**t, 1 - beta_2**t
        rho = limit - 2 * t * beta_2**t / second
        if rho >= 5 or slip:
            r = 1 if slip else (rho - 4) * (rho - 2) * limit / (limit - 4) / (limit - 2) / rho
            theta = theta - lr * np.sqrt(r * second) * m / first / (np.sqrt(v) + epsilon)
        elif published:
            theta = theta - lr * m / first
        out.append(theta)
    return np.array(out)
