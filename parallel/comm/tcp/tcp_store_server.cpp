// The server of a store: one thread, which sleeps until a client sends something. It never waits for a single client:
// each round receives a little from every client that has sent something, and sends what can be sent without waiting.

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "core/start_thread.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_handler.h"

namespace stagecoach {
namespace {

using Client = TcpStoreClient;
using SteadyClock = Client::Clock;
using State = Client::State;

constexpr int kMaxReports = 20;                                // so that unknown clients cannot fill a log
constexpr std::chrono::milliseconds kWithoutDescriptors(100);  // time before accepting is retried

SteadyClock::duration ticks(TcpStoreLimits::Seconds seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(seconds);
}

}  // namespace

class TcpStoreServer::Service {
 public:
  Service(const TcpStoreAddress& address, const TcpStoreLimits& limits, Report report)
      : listening_(listen_at(address.at)),
        ending_(::eventfd(0, EFD_CLOEXEC)),
        address_{{address.at.host, port_of(listening_)}, address.token},
        limits_(limits),
        report_(std::move(report)),
        handler_(address_, limits) {
    STAGECOACH_CHECK(ending_.descriptor() >= 0, "store: cannot create an event descriptor: {}", std::strerror(errno));
    thread_ = start_thread("the store's thread", [this] { run(); });
  }
  ~Service() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(ending_.descriptor(), &one, sizeof(one));  // 8 bytes always fit
  }

  const TcpStoreAddress& address() const { return address_; }
  std::int64_t requests() const { return handler_.requests(); }

 private:
  void run();
  void serve();
  /// Waits until something arrives or a client is overdue. Returns false when the server must stop.
  bool wait_for_news();
  int milliseconds_to_wait() const;
  void take_turn(Client& client, bool has_news);
  void accept_client();
  bool send_away_oldest_unknown(const char* why);
  /// Returns when the client will have taken too long, or nullopt.
  std::optional<SteadyClock::time_point> due(const Client& client) const;
  void send_away_late();
  void send_away(Client& client, const std::string& why);
  void remove_gone() {
    clients_.remove_if([](const Client& client) { return client.is_gone; });
  }

  TcpSocket listening_;
  TcpSocket ending_;
  TcpStoreAddress address_;
  TcpStoreLimits limits_;
  Report report_;
  int reports_ = 0;
  TcpStoreHandler handler_;
  std::list<Client> clients_;
  SteadyClock::time_point next_accept_ = SteadyClock::time_point::min();
  std::vector<pollfd> queries_;  // the stop event, the listening socket, then the clients in order
  std::jthread thread_;
};

void TcpStoreServer::Service::run() {
  try {
    serve();
  } catch (const std::exception& error) {  // usually out of memory; the clients see that the store is gone
    report_(fmt::format("store at {}: stopped: {}", to_string(address_.at), error.what()));
    clients_.clear();
    listening_ = TcpSocket();
  }
}

void TcpStoreServer::Service::serve() {
  while (wait_for_news()) {
    std::size_t query = 2;
    for (Client& client : clients_) {
      const bool has_news = queries_[query++].revents != 0;
      if (has_news || client.has_more) {
        take_turn(client, has_news);
      }
    }
    remove_gone();
    if (queries_[1].revents != 0) {
      accept_client();  // one per round, so that new clients do not delay the others
    }
    send_away_late();
    remove_gone();
    handler_.answer_waiting(clients_);
    for (Client& client : clients_) {
      client.peer.flush();
    }
  }
}

bool TcpStoreServer::Service::wait_for_news() {
  queries_.clear();
  queries_.push_back({ending_.descriptor(), POLLIN, 0});
  queries_.push_back({SteadyClock::now() < next_accept_ ? -1 : listening_.descriptor(), POLLIN, 0});
  for (const Client& client : clients_) {
    const bool listens = !client.has_more && !client.peer.has_ended() && client.peer.can_answer();
    const int events = (listens ? POLLIN : 0) | (client.peer.has_answers() ? POLLOUT : 0);
    queries_.push_back({client.peer.descriptor(), static_cast<short>(events), 0});
  }
  if (::poll(queries_.data(), queries_.size(), milliseconds_to_wait()) < 0) {
    for (pollfd& query : queries_) {
      query.revents = 0;
    }
  }
  return queries_[0].revents == 0;
}

int TcpStoreServer::Service::milliseconds_to_wait() const {
  SteadyClock::time_point next = SteadyClock::time_point::max();
  if (queries_[1].fd < 0) {
    next = next_accept_;
  }
  for (const Client& client : clients_) {
    if (client.has_more && client.peer.can_answer()) {
      return 0;
    }
    next = std::min(next, due(client).value_or(next));
  }
  if (next == SteadyClock::time_point::max()) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

void TcpStoreServer::Service::take_turn(Client& client, bool has_news) {
  try {
    handler_.take_turn(client, has_news);
  } catch (const std::exception& why) {  // including std::bad_alloc
    send_away(client, why.what());
    return;
  }
  if (client.is_gone) {
    handler_.say_goodbye(client);
  }
}

void TcpStoreServer::Service::accept_client() {
  TcpSocket socket(::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.descriptor() < 0) {
    const bool lacks_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (lacks_room &&
        !send_away_oldest_unknown("the process has run out of file descriptors; raise the limit (ulimit -n)")) {
      next_accept_ = SteadyClock::now() + kWithoutDescriptors;
    }
    return;
  }
  const int on = 1;
  static_cast<void>(::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  if (static_cast<int>(clients_.size()) - handler_.admitted() >= limits_.handshakes) {
    send_away_oldest_unknown("it has not sent its token, and other clients have connected since");
  }
  clients_.emplace_back(std::move(socket), handler_.new_budget());
  take_turn(clients_.back(), true);  // most clients have sent their hello by now
}

bool TcpStoreServer::Service::send_away_oldest_unknown(const char* why) {
  const auto oldest = std::find_if(clients_.begin(), clients_.end(),
                                   [](const Client& client) { return client.state == State::unknown; });
  if (oldest == clients_.end()) {
    return false;
  }
  send_away(*oldest, why);
  clients_.erase(oldest);
  return true;
}

std::optional<SteadyClock::time_point> TcpStoreServer::Service::due(const Client& client) const {
  if (client.state == State::unknown) {
    return client.came + ticks(limits_.handshake);
  }
  const auto since = client.peer.stalled_since();
  return since ? std::optional(*since + ticks(limits_.stall)) : std::nullopt;
}

void TcpStoreServer::Service::send_away_late() {
  const auto now = SteadyClock::now();
  for (Client& client : clients_) {
    if (!client.is_gone && now > due(client).value_or(now)) {
      send_away(client,
                client.state == State::unknown
                    ? fmt::format("it has not sent its token within {} s", limits_.handshake.count())
                    : fmt::format("it has not finished a request or read an answer for {} s", limits_.stall.count()));
    }
  }
}

void TcpStoreServer::Service::send_away(Client& client, const std::string& why) {
  if (client.state != State::unknown) {  // an unknown client may not use the protocol
    client.peer.refuse(why);
    client.peer.flush();
  }
  client.is_gone = true;
  handler_.say_goodbye(client);
  if (++reports_ <= kMaxReports) {
    report_(fmt::format("store at {}: disconnects {}{}: {}{}", to_string(address_.at), client.peer.address(),
                        client.name.empty() ? "" : fmt::format(" ({})", client.name), why,
                        reports_ < kMaxReports ? "" : "; further disconnections are not reported"));
  }
}

TcpStoreServer::TcpStoreServer(const TcpStoreAddress& address, const TcpStoreLimits& limits, Report report)
    : service_(std::make_unique<Service>(address, limits, std::move(report))) {}
TcpStoreServer::~TcpStoreServer() = default;
std::int64_t TcpStoreServer::requests() const { return service_->requests(); }
const TcpStoreAddress& TcpStoreServer::address() const { return service_->address(); }

void TcpStoreServer::report_on_stderr(const std::string& line) {
  static_cast<void>(std::fprintf(stderr, "%s\n", printable(line).c_str()));
}

}  // namespace stagecoach
