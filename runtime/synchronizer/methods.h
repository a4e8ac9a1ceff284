// runtime/synchronizer/methods.h: the methods of make_synchronizer(), each in a file of its own
// that says where it comes from, what it costs and what becomes of the others when a worker dies.
// `options` have been checked, and their timeout is above 0.
#pragma once

#include <memory>

#include "runtime/synchronizer.h"

namespace motley::runtime {

std::unique_ptr<Synchronizer> make_all_reduce(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_local_sgd(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_partial_reduce(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_ad_psgd(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_backup_workers(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_parameter_server(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_eager_solo(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_eager_majority(Communicator&, const SynchronizerOptions&);
std::unique_ptr<Synchronizer> make_wait_avoiding(Communicator&, const SynchronizerOptions&);

}  // namespace motley::runtime
