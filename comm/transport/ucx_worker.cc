#include "comm/transport/ucx_worker.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/transport/message_copies.h"
#include "comm/transport/port_guard.h"
#include "comm/transport/ucx_context.h"

namespace motley {
namespace {

constexpr unsigned kMessageId = 1;  // of active messages; there is one kind
constexpr Duration kCloseTime = seconds(0.5);
constexpr Duration kPortTime = seconds(10);  // for other ranks of the host to take their ports

}  // namespace

class UcxWorker::Impl {
 public:
  Impl(Callbacks callbacks, const UcxNetwork& network)
      : callbacks_(std::move(callbacks)), context_(make_ucx_context(network)) {
    try {
      // UCX would look for a free port for ever.
      const PortGuard guard(PortRange::parse(network.ports), Clock::real().now() + kPortTime);
      make_worker();
    } catch (...) {
      close();
      throw;
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { close(); }

  std::string address() const;
  void connect(int peer, const std::string& address);
  void disconnect(int peer) noexcept;
  void send(int peer, ConstBytes header, ConstBytes data);
  void offer(int peer, ConstBytes header, ConstBytes data);
  void offer(int peer, ConstBytes header, DeviceMessage data);
  bool flushed(int peer);
  bool sending() const noexcept { return pool_.in_use() != 0; }
  bool remote_memory() const noexcept { return context_.remote_memory; }
  bool device_memory() const noexcept { return context_.device_memory.has_value(); }
  bool progress();
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  int descriptor() const noexcept { return descriptor_; }

 private:
  struct Connection {
    Impl* impl;
    int peer;
    ucp_ep_h endpoint = nullptr;
    void* flush = nullptr;  // request under way
  };

  void make_worker();
  void close() noexcept;
  static ucs_status_t on_message(void* self, const void*, std::size_t, void* data, std::size_t size,
                                 const ucp_am_recv_param_t* param);
  Connection* connection_of(int peer) noexcept;
  void post(Connection& connection, MessageCopies::Slot& slot, std::size_t ahead, ConstBytes rest);
  MessageCopies::Slot& copied(ConstBytes header, ConstBytes data);
  void fetch(ConstBytes header, void* offer, std::size_t size);
  void fetched(MessageCopies::Slot& slot, ucs_status_t status);
  template <class Action>
  void give(Action&& action);
  void tell_broken(int peer, ucs_status_t status);
  static void on_fetched(void* request, ucs_status_t status, std::size_t, void* slot);
  static void on_error(void* connection, ucp_ep_h, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t, void* slot);

  Callbacks callbacks_;
  MessageCopies pool_;      // of what is sent; outlives the worker
  MessageCopies incoming_;  // of what is fetched; likewise
  UcxContext context_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::map<int, Connection> connections_;
  std::vector<void*> closing_;  // requests
  std::exception_ptr thrown_;   // by a callback; C code may not be unwound
};

void UcxWorker::Impl::make_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check_ucx(ucp_worker_create(context_.handle, &params, &worker_), "create a worker");
  check_ucx(ucp_worker_get_efd(worker_, &descriptor_), "get the worker's descriptor");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Impl::on_message;
  handler.arg = this;
  check_ucx(ucp_worker_set_am_recv_handler(worker_, &handler), "set the receive handler");
}

std::string UcxWorker::Impl::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check_ucx(ucp_worker_get_address(worker_, &address, &size), "get the worker's address");
  std::string text(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(worker_, address);
  return text;
}

void UcxWorker::Impl::connect(int peer, const std::string& address) {
  Connection& connection = connections_[peer];
  connection.impl = this;
  connection.peer = peer;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &Impl::on_error;
  params.err_handler.arg = &connection;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &connection.endpoint);
  if (status == UCS_OK) return;
  connection.endpoint = nullptr;
  throw Error(ErrorCode::kPeerLost,
              fmt::format("ucx: connect to rank {}: {}. It has died, or no network joins the two: "
                          "set MOTLEY_IFACE to one that does.",
                          peer, ucs_status_string(status)),
              {peer});
}

// FORCE does not wait for the peer: what is under way ends with an error, and its slots come back.
void UcxWorker::Impl::disconnect(int peer) noexcept {
  const auto it = connections_.find(peer);
  if (it == connections_.end() || it->second.endpoint == nullptr) return;
  if (it->second.flush != nullptr) ucp_request_free(std::exchange(it->second.flush, nullptr));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const request = ucp_ep_close_nbx(std::exchange(it->second.endpoint, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

// Null where the connection is closed.
UcxWorker::Impl::Connection* UcxWorker::Impl::connection_of(int peer) noexcept {
  const auto it = connections_.find(peer);
  return it == connections_.end() || it->second.endpoint == nullptr ? nullptr : &it->second;
}

MessageCopies::Slot& UcxWorker::Impl::copied(ConstBytes header, ConstBytes data) {
  MessageCopies::Slot& slot = pool_.take(header.size() + data.size());
  std::byte* const bytes = slot.bytes.data();
  std::memcpy(bytes, header.data(), header.size());
  if (!data.empty()) std::memcpy(bytes + header.size(), data.data(), data.size());
  return slot;
}

// Eagerly a slot is one message, `rest`; else its first `ahead` bytes go ahead, and `rest` is
// fetched.
void UcxWorker::Impl::post(Connection& connection, MessageCopies::Slot& slot, std::size_t ahead,
                           ConstBytes rest) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = slot.device ? *context_.device_memory : UCS_MEMORY_TYPE_HOST;
  param.flags = ahead == 0 ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  param.cb.send = &Impl::on_sent;
  param.user_data = &slot;
  void* const request =
      ucp_am_send_nbx(connection.endpoint, kMessageId, ahead == 0 ? nullptr : slot.bytes.data(),
                      ahead, rest.data(), rest.size(), &param);
  if (UCS_PTR_IS_PTR(request)) return;
  pool_.give_back(slot);
  if (UCS_PTR_IS_ERR(request)) on_error(&connection, nullptr, UCS_PTR_STATUS(request));
}

void UcxWorker::Impl::send(int peer, ConstBytes header, ConstBytes data) {
  Connection* const connection = connection_of(peer);
  if (connection == nullptr) return;
  MessageCopies::Slot& slot = copied(header, data);
  post(*connection, slot, 0, {slot.bytes.data(), header.size() + data.size()});
}

void UcxWorker::Impl::offer(int peer, ConstBytes header, ConstBytes data) {
  Connection* const connection = connection_of(peer);
  if (connection == nullptr) return;
  MessageCopies::Slot& slot = copied(header, data);
  post(*connection, slot, header.size(), {slot.bytes.data() + header.size(), data.size()});
}

void UcxWorker::Impl::offer(int peer, ConstBytes header, DeviceMessage data) {
  Connection* const connection = connection_of(peer);
  if (connection == nullptr) return;
  MessageCopies::Slot& slot = copied(header, {});
  slot.device = std::move(data);
  post(*connection, slot, header.size(), {slot.device.bytes().data, slot.device.size});
}

bool UcxWorker::Impl::flushed(int peer) {
  const auto it = connections_.find(peer);
  if (it == connections_.end() || it->second.endpoint == nullptr) return true;
  void*& flush = it->second.flush;
  if (flush == nullptr) {
    const ucp_request_param_t param{};
    void* const request = ucp_ep_flush_nbx(it->second.endpoint, &param);
    if (!UCS_PTR_IS_PTR(request)) return true;
    flush = request;
  }
  if (ucp_request_check_status(flush) == UCS_INPROGRESS) return false;
  ucp_request_free(std::exchange(flush, nullptr));
  return true;
}

bool UcxWorker::Impl::progress() {
  const bool moved = ucp_worker_progress(worker_) != 0;
  std::erase_if(closing_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  return moved;
}

// Never waits longer than kCloseTime, and needs no peer.
void UcxWorker::Impl::close() noexcept {
  callbacks_ = {};
  if (worker_ != nullptr) {
    for (const auto& [peer, connection] : connections_) disconnect(peer);
    const TimePoint deadline = Clock::real().now() + kCloseTime;
    while (!closing_.empty() && Clock::real().now() < deadline) progress();
    ucp_worker_destroy(worker_);
  }
  if (context_.handle != nullptr) ucp_cleanup(context_.handle);
}

ucs_status_t UcxWorker::Impl::on_message(void* self, const void* header, std::size_t header_size,
                                         void* data, std::size_t size,
                                         const ucp_am_recv_param_t* param) {
  auto& impl = *static_cast<Impl*>(self);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    impl.give([&] { impl.callbacks_.message({static_cast<const std::byte*>(data), size}); });
  } else {
    impl.fetch({static_cast<const std::byte*>(header), header_size}, data, size);
  }
  return UCS_OK;  // an offer that is not taken up is refused
}

template <class Action>
void UcxWorker::Impl::give(Action&& action) {
  if (!callbacks_.message) return;  // all are gone while we close
  try {
    action();
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

// Takes up an offer, unless it is refused, in memory of ours: who waits for it may give up.
void UcxWorker::Impl::fetch(ConstBytes header, void* offer, std::size_t size) {
  if (!callbacks_.offer) return;
  try {
    Fetch wanted = callbacks_.offer(header, size);
    if (wanted.from < 0) return;
    const bool on_device = static_cast<bool>(wanted.into);
    MessageCopies::Slot& slot = incoming_.take(header.size() + (on_device ? 0 : size));
    slot.worker = this;
    slot.from = wanted.from;
    slot.size = header.size() + size;
    slot.device = std::move(wanted.into);
    std::memcpy(slot.bytes.data(), header.data(), header.size());
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = on_device ? *context_.device_memory : UCS_MEMORY_TYPE_HOST;
    param.cb.recv_am = &Impl::on_fetched;
    param.user_data = &slot;
    std::byte* const to = on_device ? slot.device.bytes().data : slot.bytes.data() + header.size();
    void* const request = ucp_am_recv_data_nbx(worker_, offer, to, size, &param);
    if (!UCS_PTR_IS_PTR(request)) fetched(slot, UCS_PTR_STATUS(request));
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

void UcxWorker::Impl::fetched(MessageCopies::Slot& slot, ucs_status_t status) {
  if (status != UCS_OK) {
    tell_broken(slot.from, status);
  } else if (slot.device) {
    const std::size_t header_size = slot.size - slot.device.size;
    give([&] {
      callbacks_.device_message({slot.bytes.data(), header_size}, std::move(slot.device));
    });
  } else {
    give([&] { callbacks_.message({slot.bytes.data(), slot.size}); });
  }
  incoming_.give_back(slot);
}

void UcxWorker::Impl::on_fetched(void* request, ucs_status_t status, std::size_t, void* slot) {
  auto& done = *static_cast<MessageCopies::Slot*>(slot);
  static_cast<Impl*>(done.worker)->fetched(done, status);
  ucp_request_free(request);
}

void UcxWorker::Impl::tell_broken(int peer, ucs_status_t status) {
  if (!callbacks_.broken) return;
  try {
    callbacks_.broken(peer,
                      fmt::format("its connection broke: {}, says UCX", ucs_status_string(status)));
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

void UcxWorker::Impl::on_error(void* connection, ucp_ep_h, ucs_status_t status) {
  const auto& broken = *static_cast<Connection*>(connection);
  broken.impl->tell_broken(broken.peer, status);
}

void UcxWorker::Impl::on_sent(void* request, ucs_status_t, void* slot) {
  auto& done = *static_cast<MessageCopies::Slot*>(slot);
  done.pool->give_back(done);
  ucp_request_free(request);
}

UcxWorker::UcxWorker(Callbacks callbacks, const UcxNetwork& network)
    : impl_(std::make_unique<Impl>(std::move(callbacks), network)) {}
UcxWorker::~UcxWorker() = default;
std::string UcxWorker::address() const { return impl_->address(); }
void UcxWorker::connect(int peer, const std::string& address) { impl_->connect(peer, address); }
void UcxWorker::disconnect(int peer) noexcept { impl_->disconnect(peer); }
void UcxWorker::send(int peer, ConstBytes header, ConstBytes data) {
  impl_->send(peer, header, data);
}
void UcxWorker::offer(int peer, ConstBytes header, ConstBytes data) {
  impl_->offer(peer, header, data);
}
void UcxWorker::offer(int peer, ConstBytes header, DeviceMessage data) {
  impl_->offer(peer, header, std::move(data));
}
bool UcxWorker::flushed(int peer) { return impl_->flushed(peer); }
bool UcxWorker::sending() const noexcept { return impl_->sending(); }
bool UcxWorker::remote_memory() const noexcept { return impl_->remote_memory(); }
bool UcxWorker::device_memory() const noexcept { return impl_->device_memory(); }
bool UcxWorker::progress() { return impl_->progress(); }
bool UcxWorker::arm() { return impl_->arm(); }
int UcxWorker::descriptor() const noexcept { return impl_->descriptor(); }

}  // namespace motley
