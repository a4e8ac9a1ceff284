# Builds, tests and installs Motley without a GPU. From the root of the tree:
#   docker build -f docker/cpu.Dockerfile -t motley:cpu .
FROM debian:12
WORKDIR /motley

# The packages first: this layer stays as long as the list does.
COPY dev ./
COPY docker/packages.txt docker/
RUN ./dev setup build && rm -rf /var/lib/apt/lists/*

COPY . .
RUN ./dev test
RUN cmake --preset release -DMOTLEY_TESTS=OFF \
  && cmake --build --preset release \
  && cmake --install build/release --prefix /usr/local
CMD ["motley-wide", "--help"]
