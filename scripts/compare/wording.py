# SPDX-License-Identifier: BSD-3-Clause
"""What report.py calls rows, links and variants, and what it says of them."""

LABELS = {
    "gradwire": "gradwire, embedded",
    "gradwire-1408": "gradwire, embedded, 1,408 B payloads",
    "gradwire-authenticate": "gradwire, embedded, packets authenticated",
    "gradwire-encrypt": "gradwire, embedded, packets encrypted",
    "daemon": "gradwire, through the daemon",
    "daemon-authenticate": "gradwire, through daemons, packets authenticated",
    "daemon-encrypt": "gradwire, through daemons, packets encrypted",
    "bare": "the driver alone, no protocol",
    "tcp": "TCP ring of gradwire-perf",
    "tls": "TCP ring of gradwire-perf, by TLS",
    "rdma": "RDMA ring of gradwire-perf",
    "gloo": "Gloo (torch.distributed)",
    "mpi-tcp": "Open MPI over TCP",
    "mpi-shm": "Open MPI, shared memory",
}
SHORT = {
    "gradwire": "gradwire", "gradwire-1408": "gw 1408 B", "daemon": "gw daemon",
    "gradwire-authenticate": "gw auth.", "gradwire-encrypt": "gw encrypt",
    "daemon-authenticate": "daemon auth.", "daemon-encrypt": "daemon encrypt",
    "bare": "bare",
    "tcp": "TCP ring", "tls": "TLS ring", "rdma": "RDMA ring", "gloo": "Gloo",
    "mpi-tcp": "OMPI TCP", "mpi-shm": "OMPI shm",
}
WORTH = {
    "memif": [
        "memif against TCP is shared memory against a network stack on one machine: it shows what "
        "the datapath can do, not what a NIC will carry.",
        "memif against Open MPI's shared memory is shared memory against shared memory, but memif "
        "moves packets with checksums, acknowledgements and retransmission, Open MPI copies.",
        "The driver alone has no protocol at all, and sends out of gradient memory: nothing over "
        "this link can be much faster.",
    ],
    "veth": [
        "veth against veth is like with like: the same two devices of the same MTU. gradwire's "
        "frames take the kernel's XDP path on both ends, TCP's its stack.",
        "With segmentation offloads on, TCP hands 64 KB at a time across the veth and nothing is "
        "ever cut to the MTU: no wire does that, a NIC cuts them in hardware. With them off both "
        "send frames of the MTU.",
    ],
    "shaped": [
        "The same two devices, and the same token bucket at each end, for all: like with like. "
        "gradwire's frames leave through the kernel (af_packet), and its port is paced at 0.995 of "
        "the rate, so that the bucket never drops one; TCP is held back by the bucket's queue.",
        "With segmentation offloads on, the bucket and TCP count the headers of 64 KB once, as no "
        "wire does: the variant with offloads off is the honest one.",
    ],
    "hosts": ["The same NICs and the same wire for all: like with like."],
}

VARIANT_TITLES = {
    "plain": "", "off": "Segmentation offloads off", "on": "Segmentation offloads on",
    "busy": "Beside one busy process pinned to each core",
}
