#include "comm/transport/ucx_context.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

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

// The name of an option of TCP, which has its transport's name in it since UCX 1.17.
std::string tcp_key(const std::string& name) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::pair(major, minor) < std::pair(1u, 17u) ? name : "TCP_" + name;
}

// What goes wrong is told by errors; UCX tells it as well, on standard error, unless it is asked to
// be quiet or the user has said how much he wants to read.
void be_quiet() {
  char level[32] = {};
  if (ucs_global_opts_get_value("LOG_LEVEL", level, sizeof level) != UCS_OK) return;
  if (std::string_view(level) == "WARN") ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

// With RDMA hardware a network has other devices than the kernel's, which UCX knows better than we.
bool has_rdma() {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/infiniband", ignored) &&
         !std::filesystem::is_empty("/sys/class/infiniband", ignored);
}

void set(ucp_config_t* config, const std::string& name, const std::string& value) {
  check_ucx(ucp_config_modify(config, name.c_str(), value.c_str()),
            fmt::format("set {} to {}", name, value));
}

// Whoever sets UCX_NET_DEVICES knows what he does.
void choose_network(ucp_config_t* config, const UcxNetwork& network) {
  if (!network.device.empty() && value_of(config, "NET_DEVICES") == "all" && !has_rdma()) {
    set(config, "NET_DEVICES", network.device);
    set(config, tcp_key("AF_PRIO"), network.v6 ? "inet6,inet" : "inet,inet6");
  }
  if (!network.ports.empty()) set(config, tcp_key("PORT_RANGE"), network.ports);
}

}  // namespace

void check_ucx(ucs_status_t status, const std::string& doing) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::kUnavailable,
              fmt::format("ucx: {}: {} ({}). `ucx_info -d` lists the networks that UCX can use.",
                          doing, ucs_status_string(status), static_cast<int>(status)));
}

// UCX's defaults, its environment variables, and what we must have.
UcxContext make_ucx_context(const UcxNetwork& network) {
  disable_signal_handlers();
  be_quiet();
  ucp_config_t* config = nullptr;
  check_ucx(ucp_config_read(nullptr, nullptr, &config), "read the configuration");
  // Ranks of one host have our own shared memory, and UCX's does not notice a dead peer.
  if (value_of(config, "TLS") == "all") ucp_config_modify(config, "TLS", "^sm");
  // UCX 1.13 stops the program when a peer dies while TCP sends from a slot without a copy
  // (assertion in uct_iface.h).
  if (value_of(config, "ZCOPY_THRESH") == "auto") ucp_config_modify(config, "ZCOPY_THRESH", "inf");
  // UCX 1.13 stops the program when one event of a batch closes the connection of another
  // (assertion in uct_tcp_iface.c), as when both connections with a peer that died break: no
  // batches.
  set(config, tcp_key("MAX_POLL"), "1");
  // UCX 1.13 stops the program when a peer dies between the end of connect() and the first word to
  // it, which it sends before it counts the connection as its own (assertion in tcp_ep.c): no
  // waiting in connect().
  set(config, tcp_key("CONN_NB"), "y");
  ucp_config_modify(config, "MEMTYPE_CACHE", "n");  // all memory is given to UCX with its type
  ucp_config_modify(config, "WARN_UNUSED_ENV_VARS", "n");
  choose_network(config, network);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  UcxContext context{.remote_memory = has_rdma() && value_of(config, "TLS") != "tcp"};
  const ucs_status_t status = ucp_init(&params, config, &context.handle);
  ucp_config_release(config);
  check_ucx(status, "start");
  context.device_memory = device_memory_of(context.handle);
  return context;
}

}  // namespace motley
