# SPDX-License-Identifier: BSD-3-Clause
"""A peer of the daemon's that was written from doc/protocol alone. It uses no code of the
project. Whoever changes a packet changes the page and this."""
