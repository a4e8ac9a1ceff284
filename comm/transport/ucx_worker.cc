#include "comm/transport/ucx_worker.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/error.h"

namespace motley {
namespace {

constexpr unsigned kMessageId = 1;  // of active messages; there is one kind
constexpr Duration kCloseTime = seconds(0.5);

void check(ucs_status_t status, const std::string& doing) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::kUnavailable,
              fmt::format("ucx: {}: {} ({}). `ucx_info -d` lists the networks that UCX can use.",
                          doing, ucs_status_string(status), static_cast<int>(status)));
}

// A message's copy, which UCX reads until it says that it is done.
class SlotPool {
 public:
  struct Slot {
    std::vector<std::byte> bytes;
    SlotPool* pool;
  };

  Slot& take(std::size_t size) {
    ++in_use_;
    std::vector<Slot*>& free = free_[index(size)];
    if (free.empty()) {
      all_.push_back(std::make_unique<Slot>());
      Slot& slot = *all_.back();
      slot.bytes.resize(std::size_t{1} << index(size));
      slot.pool = this;
      free.reserve(all_.size());  // so that giving back does not allocate
      return slot;
    }
    Slot& slot = *free.back();
    free.pop_back();
    return slot;
  }
  void give_back(Slot& slot) {
    free_[index(slot.bytes.size())].push_back(&slot);
    --in_use_;
  }
  std::size_t in_use() const noexcept { return in_use_; }

 private:
  static constexpr std::size_t kSmallest = 8;  // 256 bytes
  static std::size_t index(std::size_t size) {
    return std::max<std::size_t>(kSmallest, static_cast<std::size_t>(std::bit_width(size - 1)));
  }

  std::vector<std::unique_ptr<Slot>> all_;
  std::size_t in_use_ = 0;
  std::vector<Slot*> free_[64];  // by the logarithm of their size
};

// The value of `name` in `config`, as text.
std::string value_of(ucp_config_t* config, const std::string& name) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(stream);
  const std::string all = text;
  std::free(text);
  const std::size_t begin = all.find("UCX_" + name + "=");
  if (begin == std::string::npos) return "";
  const std::size_t value = begin + name.size() + 5;
  return all.substr(value, all.find('\n', value) - value);
}

// A crash of the program is the program's own affair. UCX catches it, prints and waits, from the
// moment its library is loaded; asked to give back a signal that it does not hold, it complains.
void disable_signal_handlers() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    struct sigaction action {};
    Dl_info info{};
    if (sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) == 0) continue;
    if (dladdr(reinterpret_cast<void*>(action.sa_sigaction), &info) == 0) continue;
    if (std::string_view(info.dli_fname).find("libucs") != std::string_view::npos) {
      ucs_debug_disable_signal(signal);
    }
  }
}

// Options of one transport have its name in theirs since UCX 1.17.
const char* tcp_max_poll_key() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::pair(major, minor) < std::pair(1u, 17u) ? "MAX_POLL" : "TCP_MAX_POLL";
}

// UCX's defaults, its environment variables, and what we must have.
ucp_context_h make_context() {
  disable_signal_handlers();
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "read the configuration");
  // Ranks of one host have our own shared memory, and UCX's does not notice a dead peer.
  if (value_of(config, "TLS") == "all") ucp_config_modify(config, "TLS", "^sm");
  // UCX 1.13 stops the program when a peer dies while TCP sends from a slot without a copy
  // (assertion in uct_iface.h).
  if (value_of(config, "ZCOPY_THRESH") == "auto") ucp_config_modify(config, "ZCOPY_THRESH", "inf");
  // UCX 1.13 stops the program when one event of a batch closes the connection of another
  // (assertion in uct_tcp_iface.c), as when both connections with a peer that died break: no
  // batches.
  ucp_config_modify(config, tcp_max_poll_key(), "1");
  ucp_config_modify(config, "MEMTYPE_CACHE", "n");  // all memory given to UCX is host memory
  ucp_config_modify(config, "WARN_UNUSED_ENV_VARS", "n");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  check(status, "start");
  return context;
}

}  // namespace

class UcxWorker::Impl {
 public:
  explicit Impl(Callbacks callbacks) : callbacks_(std::move(callbacks)), context_(make_context()) {
    try {
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
  bool flushed(int peer);
  bool sending() const noexcept { return pool_.in_use() != 0; }
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
  static void on_error(void* connection, ucp_ep_h, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t, void* slot);

  Callbacks callbacks_;
  SlotPool pool_;  // outlives the worker
  ucp_context_h context_ = nullptr;
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
  check(ucp_worker_create(context_, &params, &worker_), "create a worker");
  check(ucp_worker_get_efd(worker_, &descriptor_), "get the worker's descriptor");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Impl::on_message;
  handler.arg = this;
  check(ucp_worker_set_am_recv_handler(worker_, &handler), "set the receive handler");
}

std::string UcxWorker::Impl::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check(ucp_worker_get_address(worker_, &address, &size), "get the worker's address");
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
  check(ucp_ep_create(worker_, &params, &connection.endpoint),
        fmt::format("connect to rank {}", peer));
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

void UcxWorker::Impl::send(int peer, ConstBytes header, ConstBytes data) {
  const auto it = connections_.find(peer);
  if (it == connections_.end() || it->second.endpoint == nullptr) return;
  const std::size_t size = header.size() + data.size();
  SlotPool::Slot& slot = pool_.take(size);
  std::memcpy(slot.bytes.data(), header.data(), header.size());
  if (!data.empty()) std::memcpy(slot.bytes.data() + header.size(), data.data(), data.size());
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;  // rendezvous costs three more trips on a slow link
  param.cb.send = &Impl::on_sent;
  param.user_data = &slot;
  void* const request =
      ucp_am_send_nbx(it->second.endpoint, kMessageId, nullptr, 0, slot.bytes.data(), size, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  pool_.give_back(slot);
  if (UCS_PTR_IS_ERR(request)) on_error(&it->second, nullptr, UCS_PTR_STATUS(request));
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
  if (context_ != nullptr) ucp_cleanup(context_);
}

ucs_status_t UcxWorker::Impl::on_message(void* self, const void*, std::size_t, void* data,
                                         std::size_t size, const ucp_am_recv_param_t* param) {
  auto& impl = *static_cast<Impl*>(self);
  // Nobody sends by rendezvous: such a message is not ours.
  if (!impl.callbacks_.message || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return UCS_OK;
  }
  try {
    impl.callbacks_.message({static_cast<const std::byte*>(data), size});
  } catch (...) {
    impl.thrown_ = std::current_exception();
  }
  return UCS_OK;
}

void UcxWorker::Impl::on_error(void* connection, ucp_ep_h, ucs_status_t status) {
  const auto& broken = *static_cast<Connection*>(connection);
  Impl& impl = *broken.impl;
  if (!impl.callbacks_.broken) return;
  try {
    impl.callbacks_.broken(
        broken.peer, fmt::format("its connection broke: {}, says UCX", ucs_status_string(status)));
  } catch (...) {
    impl.thrown_ = std::current_exception();
  }
}

void UcxWorker::Impl::on_sent(void* request, ucs_status_t, void* slot) {
  auto& done = *static_cast<SlotPool::Slot*>(slot);
  done.pool->give_back(done);
  ucp_request_free(request);
}

UcxWorker::UcxWorker(Callbacks callbacks) : impl_(std::make_unique<Impl>(std::move(callbacks))) {}
UcxWorker::~UcxWorker() = default;
std::string UcxWorker::address() const { return impl_->address(); }
void UcxWorker::connect(int peer, const std::string& address) { impl_->connect(peer, address); }
void UcxWorker::disconnect(int peer) noexcept { impl_->disconnect(peer); }
void UcxWorker::send(int peer, ConstBytes header, ConstBytes data) {
  impl_->send(peer, header, data);
}
bool UcxWorker::flushed(int peer) { return impl_->flushed(peer); }
bool UcxWorker::sending() const noexcept { return impl_->sending(); }
bool UcxWorker::progress() { return impl_->progress(); }
bool UcxWorker::arm() { return impl_->arm(); }
int UcxWorker::descriptor() const noexcept { return impl_->descriptor(); }

}  // namespace motley
