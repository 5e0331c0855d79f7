// The serving side of a store: one thread, which sleeps until a client has something to say.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/comm/tcp_store.h"
#include "parallel/comm/tcp_store_message.h"

namespace stagecoach {

using Request = TcpStoreRequest;

class TcpStoreServer::Service {
 public:
  explicit Service(const TcpAddress& address) : listening_(listen_at(address)), ending_(::eventfd(0, EFD_CLOEXEC)) {
    STAGECOACH_CHECK(ending_.descriptor() >= 0, "store: no event descriptor: {}", std::strerror(errno));
    thread_ = std::jthread([this] { serve(); });
  }
  ~Service() {
    const std::uint64_t one = 1;
    static_cast<void>(::write(ending_.descriptor(), &one, sizeof(one)));
  }

  int port() const { return port_of(listening_); }

 private:
  struct Client {
    TcpSocket socket;
    std::string unread = {};
    std::optional<std::pair<Request::Operation, std::string>> waits_for = {};  // get or pop, and the key
    std::vector<std::pair<std::string, std::string>> when_lost = {};           // key and value
    bool is_gone = false;
  };

  void serve();
  void accept_client();
  void read_from(Client& client);
  /// False when what came is no request.
  bool take_requests(Client& client);
  void follow(Client& client, const Request& request, const std::string& key, std::string value);
  /// Answers those clients whose wait is over.
  void answer_waiting();
  void say_goodbye();
  static void answer(Client& client, std::int64_t number, const std::string& value);

  TcpSocket listening_;
  TcpSocket ending_;
  std::list<Client> all_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> numbers_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::jthread thread_;
};

void TcpStoreServer::Service::serve() {
  for (;;) {
    std::vector<pollfd> looks{{ending_.descriptor(), POLLIN, 0}, {listening_.descriptor(), POLLIN, 0}};
    for (const Client& client : all_) {
      looks.push_back({client.socket.descriptor(), POLLIN, 0});
    }
    static_cast<void>(::poll(looks.data(), looks.size(), -1));
    if (looks[0].revents != 0) {
      return;
    }
    std::size_t place = 2;
    for (Client& client : all_) {
      if (looks[place++].revents != 0) {
        read_from(client);
      }
    }
    if (looks[1].revents != 0) {
      accept_client();
    }
    say_goodbye();
    answer_waiting();
  }
}

void TcpStoreServer::Service::accept_client() {
  TcpSocket socket(::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.descriptor() >= 0) {
    all_.push_back({std::move(socket)});
  }
}

void TcpStoreServer::Service::read_from(Client& client) {
  char bytes[4096];
  for (;;) {
    const ssize_t came = ::recv(client.socket.descriptor(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (came > 0) {
      client.unread.append(bytes, static_cast<std::size_t>(came));
    } else if (came < 0 && errno == EINTR) {
      continue;
    } else {
      client.is_gone = came == 0 || errno != EAGAIN;
      break;
    }
  }
  client.is_gone = !take_requests(client) || client.is_gone;
}

bool TcpStoreServer::Service::take_requests(Client& client) {
  std::size_t done = 0;
  Request request;
  while (client.unread.size() - done >= sizeof(request)) {
    std::memcpy(&request, client.unread.data() + done, sizeof(request));
    if (request.magic != Request::kMagic || request.key_bytes > TcpStore::kMostBytes ||
        request.value_bytes > TcpStore::kMostBytes) {
      return false;
    }
    const std::size_t bytes = sizeof(request) + request.key_bytes + request.value_bytes;
    if (client.unread.size() - done < bytes) {
      break;
    }
    const std::size_t key = done + sizeof(request);
    follow(client, request, client.unread.substr(key, request.key_bytes),
           client.unread.substr(key + request.key_bytes, request.value_bytes));
    done += bytes;
  }
  client.unread.erase(0, done);
  return true;
}

void TcpStoreServer::Service::follow(Client& client, const Request& request, const std::string& key,
                                     std::string value) {
  switch (request.operation) {
    case Request::kSet:
      values_[key] = std::move(value);
      break;
    case Request::kAdd:
      answer(client, numbers_[key] += request.number, "");
      break;
    case Request::kPush:
      queues_[key].push_back(std::move(value));
      break;
    case Request::kGet:
    case Request::kPop:
      client.waits_for = {request.operation, key};
      break;
    case Request::kPushWhenLost:
      client.when_lost.emplace_back(key, std::move(value));
      break;
    case Request::kLeave:
      client.when_lost.clear();
      break;
  }
}

void TcpStoreServer::Service::answer_waiting() {
  for (Client& client : all_) {
    if (!client.waits_for) {
      continue;
    }
    const auto& [operation, key] = *client.waits_for;
    if (operation == Request::kGet) {
      if (const auto found = values_.find(key); found != values_.end()) {
        answer(client, 0, found->second);
        client.waits_for.reset();
      }
    } else if (const auto found = queues_.find(key); found != queues_.end()) {
      answer(client, 0, found->second.front());
      found->second.pop_front();
      if (found->second.empty()) {
        queues_.erase(found);
      }
      client.waits_for.reset();
    }
  }
}

void TcpStoreServer::Service::say_goodbye() {
  for (Client& client : all_) {
    if (client.is_gone) {
      for (auto& [key, value] : client.when_lost) {
        queues_[key].push_back(std::move(value));
      }
    }
  }
  all_.remove_if([](const Client& client) { return client.is_gone; });
}

void TcpStoreServer::Service::answer(Client& client, std::int64_t number, const std::string& value) {
  const TcpStoreAnswer head{number, value.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += value;
  static_cast<void>(client.socket.send(bytes.data(), bytes.size()));  // if it is lost, that shows when reading
}

TcpStoreServer::TcpStoreServer(const TcpAddress& address) : service_(std::make_unique<Service>(address)) {}
TcpStoreServer::~TcpStoreServer() = default;
int TcpStoreServer::port() const { return service_->port(); }

}  // namespace stagecoach
