#include "parallel/comm/tcp/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <thread>

#include "core/base/printable.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {
namespace {

constexpr int kMaxReports = 10;
constexpr int kMaxAccepted = 64;  // at once, so that a flood leaves time for the ranks
constexpr std::uint32_t kMaxReason = 4096;
constexpr std::chrono::milliseconds kBetweenTries(20);
// A rank may push out a client whose hello has not arrived, in favour of newer ones. That does not last.
constexpr std::chrono::seconds kSilent(2);
constexpr const char* kTokenAdvice =
    "give all ranks the same STAGECOACH_TOKEN, or the same ~/.stagecoach_token (docs/clusters.md)";

/// Compares in constant time, so that a token cannot be guessed byte by byte.
bool is_same_secret(const std::array<char, TcpHello::kMaxToken>& one,
                    const std::array<char, TcpHello::kMaxToken>& other) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return difference == 0;
}

template <std::size_t n>
void copy_text(std::array<char, n>& into, const std::string& text, const char* what, std::size_t most = n) {
  throw_if<UsageError>(text.size() > most, "expected a {} of at most {} bytes, got {}", what, most, text.size());
  std::copy(text.begin(), text.end(), into.begin());
}

/// Sends the answer to a hello: the length of the reason, which is empty for a client that is accepted, and the reason.
void send_answer(const TcpSocket& client, const std::string& why) {
  const auto bytes = std::min(static_cast<std::uint32_t>(why.size()), kMaxReason);
  std::string answer(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  answer += why.substr(0, bytes);
  static_cast<void>(client.send(answer.data(), answer.size(), {}));
}

/// Returns the reason in an answer, or nullopt if none arrives.
std::optional<std::string> receive_answer(const TcpSocket& socket, TcpDeadline deadline) {
  std::uint32_t bytes = 0;
  if (socket.receive(&bytes, sizeof(bytes), deadline) != TcpSocket::Outcome::done || bytes > kMaxReason) {
    return std::nullopt;
  }
  std::string why(bytes, '\0');
  const bool has_arrived = socket.receive(why.data(), why.size(), deadline) == TcpSocket::Outcome::done;
  return has_arrived ? std::optional(why) : std::nullopt;
}

}  // namespace

TcpHello::TcpHello(const std::string& secret, const std::string& name, int its_rank, int its_size)
    : magic(kMagic), rank(its_rank), size(its_size) {
  copy_text(token, secret, "token");
  copy_text(group, name, "group name", group.size() - 1);
}

void TcpAdmission::report_on_stderr(const std::string& line) {
  static_cast<void>(std::fprintf(stderr, "%s\n", printable(line).c_str()));
}

TcpAdmission::TcpAdmission(const RankAddress& address, const Limits& limits, Report report)
    : address_(address), limits_(limits), report_(std::move(report)), listening_(listen_at(address.at)) {
  address_.at.port = local_address(listening_).port;
}

void TcpAdmission::watch(std::vector<pollfd>& queries) const {
  queries.push_back({listening_.descriptor(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    queries.push_back({stranger.socket.descriptor(), POLLIN, 0});
  }
}

std::vector<TcpAdmission::Client> TcpAdmission::advance() {
  std::vector<Client> admitted;
  read_hellos(admitted);
  for (int i = 0; i < kMaxAccepted && accept_stranger(); ++i) {
    if (strangers_.size() > limits_.strangers) {
      read_hellos(admitted);
    }
    if (strangers_.size() > limits_.strangers) {
      dismiss_oldest("it has not sent its token, and other clients have connected since");
    }
  }
  read_hellos(admitted);
  return admitted;
}

bool TcpAdmission::accept_stranger() {
  // Without descriptors, accept() fails whether or not a client is waiting.
  pollfd query{listening_.descriptor(), POLLIN, 0};
  if (::poll(&query, 1, 0) <= 0) {
    return false;
  }
  TcpSocket socket(system::accept_connection(listening_.descriptor()));
  if (socket.descriptor() < 0) {
    const bool lacks_descriptors = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (lacks_descriptors &&
        !dismiss_oldest("the process has run out of file descriptors; raise the limit (ulimit -n)")) {
      std::this_thread::sleep_for(kBetweenTries);  // poll() would return at once
    }
    return false;
  }
  set_no_delay(socket);
  strangers_.push_back({std::move(socket), deadline_after(limits_.patience)});
  return true;
}

bool TcpAdmission::dismiss_oldest(const char* why) {
  if (strangers_.empty()) {
    return false;
  }
  report(strangers_.front().socket, why);
  strangers_.pop_front();
  return true;
}

void TcpAdmission::read_hellos(std::vector<Client>& admitted) {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(strangers_, [&](Stranger& stranger) {
    auto* next = reinterpret_cast<std::byte*>(&stranger.hello) + stranger.received;
    const std::ptrdiff_t bytes = stranger.socket.receive_some(next, sizeof(TcpHello) - stranger.received);
    if (bytes < 0) {
      return true;
    }
    stranger.received += static_cast<std::size_t>(bytes);
    const bool is_complete = stranger.received == sizeof(TcpHello);
    std::string why = is_complete ? objection(stranger.hello) : "";
    if (!is_complete && now >= stranger.deadline) {
      why = "it has not sent its token in time";
    }
    if (!why.empty()) {
      report(stranger.socket, why);
    } else if (is_complete) {
      admitted.push_back({std::move(stranger.socket), stranger.hello});
    }
    return is_complete || !why.empty();
  });
}

std::string TcpAdmission::objection(const TcpHello& hello) const {
  if (hello.magic != TcpHello::kMagic || hello.group.back() != '\0') {
    return "expected the hello of a rank, got other bytes; use the same version on all ranks";
  }
  const bool knows_token = is_same_secret(hello.token, TcpHello(address_.token, "", 0, 0).token);
  return knows_token ? "" : fmt::format("its token differs from this rank's; {}", kTokenAdvice);
}

void TcpAdmission::report(const TcpSocket& client, const std::string& why) {
  if (++reports_ <= kMaxReports) {
    report_(fmt::format("{}: disconnects {}: {}{}", to_string(address_.at), to_string(remote_address(client)), why,
                        reports_ < kMaxReports ? "" : "; further disconnections are not reported"));
  }
}

void accept_client(const TcpSocket& client) { send_answer(client, ""); }

void refuse_client(const TcpSocket& client, const std::string& why) { send_answer(client, why); }

TcpSocket connect_to_rank(const RankAddress& address, const std::string& whom, const TcpHello& hello,
                          TcpDeadline deadline) {
  const std::string name = fmt::format("{} ({})", whom, to_string(address.at));
  TcpDeadline silent = TcpDeadline::max();
  for (;;) {
    TcpSocket socket = connect_to(address.at, deadline, whom);
    const bool is_sent = socket.send(&hello, sizeof(hello));
    if (const auto why = is_sent ? receive_answer(socket, deadline) : std::nullopt) {
      throw_if<UsageError>(!why->empty(), "{} rejects this process: {}", name, *why);
      return socket;
    }
    const auto now = std::chrono::steady_clock::now();
    throw_if<CommError>(now + kBetweenTries > deadline,
                        "{}: no answer; check that it is running there, or raise `timeout`", name);
    silent = std::min(silent, now + kSilent);
    throw_if<UsageError>(now >= silent, "{} closes the connection without an answer: its token may differ; {}", name,
                         kTokenAdvice);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace stagecoach
