#include "parallel/comm/tcp/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/start_thread.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {
namespace {

constexpr std::size_t kMaxWaiting = 8 << 20;  // bytes of messages for one rank
constexpr std::chrono::seconds kStall(10);    // a rank that reads none of its messages for so long is sent away
constexpr std::chrono::seconds kServerFarewell(1);
constexpr std::chrono::milliseconds kEndPoll(2);

}  // namespace

std::string bootstrap_message(std::int32_t to, const std::string& key, const std::string& text) {
  const BootstrapHeader header{.to = to,
                               .key_bytes = static_cast<std::uint32_t>(key.size()),
                               .text_bytes = static_cast<std::uint32_t>(text.size())};
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  return message.append(key).append(text);
}

BootstrapServer::BootstrapServer(const RankAddress& address, int ranks, const TcpAdmission::Limits& limits,
                                 TcpAdmission::Report report)
    : admission_(address, limits, std::move(report)), ranks_(ranks), never_connected_(ranks) {
  thread_ = start_thread("the bootstrap's thread", [this](const std::stop_token& stop) { serve(stop); });
}

BootstrapServer::~BootstrapServer() {
  thread_.request_stop();
  ending_.set();
}

void BootstrapServer::wait_until_left(TcpDeadline join_by, TcpDeadline end) const {
  const TcpDeadline farewell = std::chrono::steady_clock::now() + kServerFarewell;
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    const bool may_join = never_connected_ > 0 && now < join_by;
    if ((connected_ == 0 && !may_join) || now >= end || (has_failed_ && now >= farewell)) {
      return;
    }
    std::this_thread::sleep_for(kEndPoll);
  }
}

void BootstrapServer::serve(const std::stop_token& stop) try {
  std::vector<pollfd> queries;
  while (!stop.stop_requested()) {
    queries.assign(1, {ending_.descriptor(), POLLIN, 0});
    for (const Client& client : clients_) {
      const int events = client.out.empty() ? POLLIN : POLLIN | POLLOUT;
      queries.push_back({client.socket.descriptor(), static_cast<short>(events), 0});
    }
    admission_.watch(queries);
    static_cast<void>(::poll(queries.data(), queries.size(), TcpAdmission::kPoll));
    for (TcpAdmission::Client& client : admission_.advance()) {
      join(std::move(client));
    }
    for (Client& client : clients_) {
      read(client);
      write(client);
    }
    remove_lost();
  }
} catch (const std::exception& error) {  // usually out of memory; the clients see that the bootstrap is gone
  TcpAdmission::report_on_stderr(fmt::format("rank 0's bootstrap has stopped: {}", error.what()));
  clients_.clear();
}

void BootstrapServer::join(TcpAdmission::Client client) {
  if (const std::string why = objection(client.hello); !why.empty()) {
    admission_.report(client.socket, why);
    return refuse_client(client.socket, why);
  }
  const std::string group = client.hello.group.data();
  std::vector<Member>& members = groups_[group];
  members.resize(static_cast<std::size_t>(ranks_));
  Member& member = members[static_cast<std::size_t>(client.hello.rank)];
  accept_client(client.socket);
  Client& joined = clients_.emplace_back(Client{std::move(client.socket), group, client.hello.rank});
  joined.progress = std::chrono::steady_clock::now();
  joined.out = std::exchange(member.waiting, {});
  member.client = &joined;
  member.has_joined = true;
  const auto missing = std::count_if(members.begin(), members.end(), [](const Member& m) { return !m.has_joined; });
  connected_ = static_cast<int>(clients_.size());
  never_connected_ = std::min(never_connected_.load(), static_cast<int>(missing));
}

std::string BootstrapServer::objection(const TcpHello& hello) const {
  if (hello.size != ranks_ || hello.rank < 0 || hello.rank >= ranks_) {
    return fmt::format("it is rank {} of {}, and this is a run of {} ranks; give all processes the same WORLD_SIZE",
                       hello.rank, hello.size, ranks_);
  }
  const auto group = groups_.find(hello.group.data());
  if (group != groups_.end() && group->second[static_cast<std::size_t>(hello.rank)].has_joined) {
    return fmt::format("two processes claim to be rank {}; check RANK, and that no other run uses {}", hello.rank,
                       to_string(address().at));
  }
  return "";
}

void BootstrapServer::read(Client& client) {
  std::array<char, 64 << 10> bytes;
  const std::ptrdiff_t received = client.socket.receive_some(bytes.data(), bytes.size());
  if (received < 0) {
    client.lost_because = "the connection is lost";
    return;
  }
  client.in.append(bytes.data(), static_cast<std::size_t>(received));
  BootstrapHeader header;
  std::size_t done = 0;
  while (client.in.size() - done >= sizeof(header)) {
    std::memcpy(&header, client.in.data() + done, sizeof(header));
    if (!header.is_valid()) {
      client.lost_because = "expected a message, got other bytes";
      return;
    }
    const std::size_t length = sizeof(header) + header.body();
    if (client.in.size() - done < length) {
      break;
    }
    pass_on(client, header, client.in.substr(done, length));
    done += length;
  }
  client.in.erase(0, done);
}

void BootstrapServer::pass_on(Client& sender, const BootstrapHeader& header, const std::string& message) {
  ++messages_;
  has_failed_ = has_failed_ || message.compare(sizeof(header), header.key_bytes, kFailureKey) == 0;
  if (header.to == BootstrapHeader::kLeaving) {
    sender.is_leaving = true;
    sender.lost_because = "it has left";
  }
  std::vector<Member>& members = groups_.at(sender.group);
  for (int r = 0; r < ranks_; ++r) {
    const bool is_addressed = header.to == r || (header.to == BootstrapHeader::kToAll && r != sender.rank);
    if (is_addressed) {
      deliver(sender, members[static_cast<std::size_t>(r)], message);
    }
  }
}

void BootstrapServer::deliver(Client& sender, Member& receiver, const std::string& message) {
  if (receiver.client == nullptr && receiver.has_joined) {
    return;  // it has left
  }
  std::string& waiting = receiver.client == nullptr ? receiver.waiting : receiver.client->out;
  if (waiting.size() + message.size() > kMaxWaiting) {
    Client& at_fault = receiver.client == nullptr ? sender : *receiver.client;
    at_fault.lost_because = "too many messages wait to be read";
    return;
  }
  waiting += message;
  if (receiver.client != nullptr) {
    write(*receiver.client);
  }
}

void BootstrapServer::write(Client& client) {
  const std::ptrdiff_t sent = client.socket.send_some(client.out.data(), client.out.size());
  const auto now = std::chrono::steady_clock::now();
  if (sent < 0) {
    client.lost_because = "the connection is lost";
  } else if (sent > 0 || client.out.empty()) {
    client.out.erase(0, static_cast<std::size_t>(sent));
    client.progress = now;
  } else if (now - client.progress > kStall) {
    client.lost_because = fmt::format("it has not read its messages for {} s", kStall.count());
  }
}

void BootstrapServer::remove_lost() {
  for (auto client = clients_.begin(); client != clients_.end();) {
    if (client->lost_because.empty()) {
      ++client;
      continue;
    }
    groups_.at(client->group)[static_cast<std::size_t>(client->rank)].client = nullptr;
    if (!client->is_leaving) {
      const std::string who = fmt::format("the process of rank {} has died", client->rank);
      const std::string message = bootstrap_message(BootstrapHeader::kToAll, kFailureKey, who);
      BootstrapHeader header;
      std::memcpy(&header, message.data(), sizeof(header));
      pass_on(*client, header, message);
    }
    client = clients_.erase(client);
  }
  connected_ = static_cast<int>(clients_.size());
}

}  // namespace stagecoach
