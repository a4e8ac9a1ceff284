// comm/options.h: every option of the library, with its default, unit and environment name.
// Read once, printed at start, passed down: no other file reads the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "comm/clock.h"
#include "comm/log.h"

namespace motley {

// The value of a variable; null if it is not set.
using Environment = std::function<const char*(const char* variable)>;

struct Options {
  static constexpr int kMaxRanks = 1 << 16;

  // --- who we are; set by motley-run, or found in what another scheduler set ---------------------
  int rank = 0;  // MOTLEY_RANK           this process, in [0, size)
  int size = 1;  // MOTLEY_SIZE           number of ranks
  // MOTLEY_CONTROLLER     where the ranks meet; empty: a single rank
  //   "tcp://host:port"     a controller that was started there; with standbys all of them, in
  //                         their order: "tcp://a:1,tcp://b:2"
  //   "rank0://host:port"   one that rank 0 runs, on that port of its host
  //   "file:/path"          the same, on any port: rank 0 writes into the file where it listens;
  //                         on a file system that all see,
  //                         one path for each job
  std::string controller;
  std::string token;  // MOTLEY_TOKEN          secret of the job; the controller admits no other
  double slow = 1;    // MOTLEY_SLOW           this rank computes so many times slower (tests, demo)

  // --- how we talk ------------------------------------------------------------------------------
  // MOTLEY_IFACE          network between hosts, a device or a subnet:
  //                       "eth1", "10.1.0.0/16" or "fd00::/8";
  //                       empty: the one that leads to the controller
  std::string interface;
  std::string ports;  // MOTLEY_PORTS          "29600-29699": TCP ports to listen at; empty: any
  std::string host;   // MOTLEY_HOST           ranks share memory if this is equal; empty: found out
  std::string transport = "auto";  // MOTLEY_TRANSPORT      auto, shm or ucx
  std::string algorithm = "auto";  // MOTLEY_ALGORITHM      auto, or a name in README.md
  // MOTLEY_CMA            "auto": ranks of a host read each other's buffers (process_vm_readv)
  //                       where the kernel lets them and it is faster; "off": never
  std::string cma = "auto";
  // MOTLEY_TOPOLOGY       what algorithms are chosen by: "probe", links as measured while joining;
  //                       "hosts", hosts and usual links; a file (topology.h), read by rank 0;
  //                       "auto", as measured where there are several hosts, else usual links
  std::string topology = "auto";
  Duration timeout = seconds(30);  // MOTLEY_TIMEOUT        seconds a call may take
  Duration join_timeout =
      seconds(60);                    // MOTLEY_JOIN_TIMEOUT   seconds to wait for all ranks to join
  Duration heartbeat = seconds(0.2);  // MOTLEY_HEARTBEAT      seconds between signs of life
  Duration lease =
      seconds(1.5);  // MOTLEY_LEASE          seconds of silence after which a rank is dead
  // MOTLEY_DUMP           folder for the last calls of all ranks, as JSON lines, when a call times
  //                       out or SIGUSR1 asks for a status; empty: they are not written
  std::string dump;
  // MOTLEY_PROGRESS_THREAD  "on", "off": whether a thread moves on the calls that nobody waits for
  bool progress_thread = true;
  std::size_t segment_bytes = 128 << 10;  // MOTLEY_SEGMENT_BYTES  largest message of a collective
  // MOTLEY_STAGING_SLOTS  pieces of a call on device memory that are under way at once, each in a
  //                       slot of pinned memory
  int staging_slots = 4;
  // MOTLEY_STAGING_BYTES  pinned memory for them, of all calls together; where it is used up, a
  // call
  //                       has one piece under way
  std::size_t staging_bytes = 256 << 20;
  // MOTLEY_UCX_WINDOW     bytes on the way to one rank of another host, at most; as many as the
  //                       measured link needs are used, and 8 MiB on one that was not measured
  std::size_t ucx_window = 64 << 20;
  // MOTLEY_UCX_RENDEZVOUS bytes from which messages to other hosts wait until the receiver fetches
  //                       them; -1: as the measured link wants it, if the network fetches by itself
  std::int64_t ucx_rendezvous = -1;
  // MOTLEY_UCX_DEVICE     "direct": UCX itself moves device memory, within hosts, too; "staged": it
  //                       goes through the host; "auto": direct where all messages go over UCX and
  //                       all ranks' UCX know CUDA memory
  std::string ucx_device = "auto";
  // MOTLEY_NCCL           which calls on device memory NCCL runs, each rank having a device of its
  //                       own: "off", none; "stable", those of all ranks and of groups that are
  //                       used often; "all", of every group, for jobs whose ranks do not die
  std::string nccl = "off";
  // MOTLEY_NCCL_SCRATCH   bytes of device memory for what others send there; the same on all ranks
  std::size_t nccl_scratch = 32 << 20;
  int log_level = 1;  // MOTLEY_LOG_LEVEL      0 debug, 1 info, 2 warning, 3 error: the least told
  LogSink log;        // who is told; nobody, if empty

  // Defaults overridden by the environment. Where MOTLEY_RANK is not set, rank, size, controller
  // and token are taken from torchrun, Open MPI, PMI, Slurm or a Kubernetes indexed job, if one of
  // them started the process. Throws kInvalid, naming variable, value and range.
  static Options from_environment();
  static Options from_environment(const Environment& environment);
  // Tells `log`, unless `level` is below log_level.
  void tell(LogLevel level, const std::string& text) const;
  // One line per option: name, value, environment name.
  std::string to_text() const;
};

}  // namespace motley
