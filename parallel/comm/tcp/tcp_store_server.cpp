// The server of a store: one thread accepts clients, and each client has a session with a thread of its own.

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/start_thread.h"
#include "core/base/system.h"
#include "core/base/wakeup.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_session.h"

namespace stagecoach {
namespace {

constexpr int kMaxReports = 20;           // so that unknown clients cannot fill a log
constexpr int kWithoutDescriptors = 100;  // milliseconds before accepting is retried
constexpr int kForUnread = 1;             // milliseconds in which sessions read what has come

}  // namespace

class TcpStoreServer::Service {
 public:
  Service(const TcpStoreAddress& address, const TcpStoreLimits& limits, Report report)
      : listening_(listen_at(address.at)),
        state_{.address = {{address.at.host, port_of(listening_)}, address.token}, .limits = limits},
        report_(std::move(report)) {
    STAGECOACH_CHECK(ending_.descriptor() >= 0, "store: cannot create an event: {}", std::strerror(errno));
    thread_ = start_thread("the store's thread", [this] { run(); });
  }
  ~Service() {
    state_.is_stopping = true;
    ending_.set();
  }

  const TcpStoreState& state() const { return state_; }

 private:
  struct Client {
    Client(TcpStoreState& state, TcpSocket socket) : session(state, std::move(socket)) {}
    ~Client() { session.shut_down(); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    TcpStoreSession session;
    std::atomic<bool> has_ended = false;
    std::jthread thread;
  };

  void run();
  void accept_client();
  bool ends_within(int milliseconds);
  void serve(Client& client);
  bool dismiss_oldest_unknown(const char* why);
  void report(const std::string& client, const std::string& why);

  TcpSocket listening_;
  Wakeup ending_;
  TcpStoreState state_;
  std::mutex reporting_;  // guards the two members below
  Report report_;
  int reports_ = 0;
  std::list<Client> clients_;  // used by thread_ only
  std::jthread thread_;
};

void TcpStoreServer::Service::run() {
  std::array<pollfd, 2> queries{{{ending_.descriptor(), POLLIN, 0}, {listening_.descriptor(), POLLIN, 0}}};
  try {
    while (::poll(queries.data(), queries.size(), -1) < 0 || queries[0].revents == 0) {
      clients_.remove_if([](const Client& client) { return client.has_ended.load(); });
      accept_client();
    }
  } catch (const std::exception& error) {  // usually out of memory; the clients see that the store is gone
    state_.is_stopping = true;
    clients_.clear();
    listening_ = TcpSocket();
    report_(fmt::format("store at {}: stopped: {}", to_string(state_.address.at), error.what()));
  }
}

void TcpStoreServer::Service::accept_client() {
  TcpSocket socket(system::accept_connection(listening_.descriptor()));
  if (socket.descriptor() < 0) {
    const bool lacks_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (lacks_room &&
        !dismiss_oldest_unknown("the process has run out of file descriptors; raise the limit (ulimit -n)")) {
      ends_within(kWithoutDescriptors);
    }
    return;
  }
  const int on = 1;
  static_cast<void>(::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  const auto is_unknown = [](Client& client) { return client.session.is_unknown(); };
  while (std::count_if(clients_.begin(), clients_.end(), is_unknown) >= state_.limits.handshakes) {
    // One that has sent its token is admitted once its thread runs.
    if (!dismiss_oldest_unknown("it has not sent its token, and other clients have connected since") &&
        ends_within(kForUnread)) {
      return;
    }
  }
  Client& client = clients_.emplace_back(state_, std::move(socket));
  try {
    client.thread = start_thread("a thread for a client of the store", [this, &client] { serve(client); });
  } catch (const Error& error) {
    report(client.session.client(), error.what());
    clients_.pop_back();
  }
}

/// Returns whether the server is to end, which it waits for.
bool TcpStoreServer::Service::ends_within(int milliseconds) {
  pollfd query{ending_.descriptor(), POLLIN, 0};
  return ::poll(&query, 1, milliseconds) > 0;
}

void TcpStoreServer::Service::serve(Client& client) {
  try {
    if (const std::string why = client.session.serve(); !why.empty()) {
      report(client.session.client(), why);
    }
  } catch (const std::bad_alloc&) {  // no memory for the report
  }
  client.has_ended = true;
}

bool TcpStoreServer::Service::dismiss_oldest_unknown(const char* why) {
  const auto oldest =
      std::find_if(clients_.begin(), clients_.end(), [](Client& client) { return client.session.dismiss(); });
  if (oldest == clients_.end()) {
    return false;
  }
  const std::string client = oldest->session.client();
  clients_.erase(oldest);
  report(client, why);
  return true;
}

void TcpStoreServer::Service::report(const std::string& client, const std::string& why) {
  const std::lock_guard lock(reporting_);
  if (++reports_ <= kMaxReports) {
    report_(fmt::format("store at {}: disconnects {}: {}{}", to_string(state_.address.at), client, why,
                        reports_ < kMaxReports ? "" : "; further disconnections are not reported"));
  }
}

TcpStoreServer::TcpStoreServer(const TcpStoreAddress& address, const TcpStoreLimits& limits, Report report)
    : service_(std::make_unique<Service>(address, limits, std::move(report))) {}
TcpStoreServer::~TcpStoreServer() = default;
std::int64_t TcpStoreServer::requests() const { return service_->state().requests; }
const TcpStoreAddress& TcpStoreServer::address() const { return service_->state().address; }

void TcpStoreServer::report_on_stderr(const std::string& line) {
  static_cast<void>(std::fprintf(stderr, "%s\n", printable(line).c_str()));
}

}  // namespace stagecoach
