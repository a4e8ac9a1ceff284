# Builds, tests and installs Motley with CUDA and NCCL. From the root of the tree:
#   docker build -f docker/cuda.Dockerfile -t motley:cuda .
# Tests that need a GPU run where the builder has one; elsewhere they are named and left out. Later:
#   docker run --gpus all motley:cuda ./dev test -L gpu
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
WORKDIR /motley

# The packages first: this layer stays as long as the list does. NCCL comes with the base image.
COPY dev ./
COPY docker/packages.txt docker/
RUN ./dev setup build && rm -rf /var/lib/apt/lists/*

COPY . .
RUN ./dev test
RUN cmake --preset release -DMOTLEY_TESTS=OFF \
  && cmake --build --preset release \
  && cmake --install build/release --prefix /usr/local
CMD ["motley-wide", "--help"]
