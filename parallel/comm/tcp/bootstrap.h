#pragma once
/// @file
/// How ranks find each other and report failures: rank 0 serves a bootstrap, which passes short messages between the
/// ranks. Its clients are control channels (control_channel.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/base/wakeup.h"
#include "parallel/comm/tcp/admission.h"

namespace stagecoach {

/// Precedes a message, which consists of a key and a text.
struct BootstrapHeader {
  static constexpr std::uint32_t kMagic = 0x57a6ec0d;
  static constexpr std::int32_t kToAll = -1;    ///< to all other ranks
  static constexpr std::int32_t kLeaving = -2;  ///< the client leaves: it has not died
  static constexpr std::size_t kMaxKey = 1 << 10;
  static constexpr std::size_t kMaxText = 1 << 20;

  std::uint32_t magic = kMagic;
  std::int32_t to = 0;  ///< the receiving rank
  std::uint32_t key_bytes = 0;
  std::uint32_t text_bytes = 0;

  bool is_valid() const { return magic == kMagic && key_bytes <= kMaxKey && text_bytes <= kMaxText; }
  std::size_t body() const { return std::size_t{key_bytes} + text_bytes; }
};
/// Returns a message as bytes.
std::string bootstrap_message(std::int32_t to, const std::string& key, const std::string& text);

/// The key of a message that says which rank has failed, and why.
inline constexpr const char* kFailureKey = "failed";

/// The server. It runs on its own thread until it is destroyed. Ranks connect under the name of a group; groups are
/// independent. Messages from one rank to another arrive in order, also if the receiver connects later. When the
/// connection to a rank is lost, all others of its group receive a failure.
class BootstrapServer {
 public:
  /// Serves groups of `ranks` ranks. Throws as TcpAdmission does.
  BootstrapServer(const RankAddress& address, int ranks, const TcpAdmission::Limits& limits = {},
                  TcpAdmission::Report report = TcpAdmission::report_on_stderr);
  ~BootstrapServer();
  BootstrapServer(const BootstrapServer&) = delete;
  BootstrapServer& operator=(const BootstrapServer&) = delete;

  const RankAddress& address() const { return admission_.address(); }
  /// Returns the number of messages received so far.
  std::int64_t messages() const { return messages_; }
  /// Waits until no client is connected and every rank has been, but not longer than `end`, nor longer than `join_by`
  /// for ranks that have never connected, and not longer than a second if a rank has failed.
  void wait_until_left(TcpDeadline join_by, TcpDeadline end) const;

 private:
  struct Client {
    TcpSocket socket;
    std::string group;
    int rank;
    std::string in = {};
    std::string out = {};       // messages that the socket has no room for yet
    TcpDeadline progress = {};  // when `out` was last empty or sent from
    bool is_leaving = false;
    std::string lost_because = {};  // "" while it is connected
  };
  struct Member {
    bool has_joined = false;
    Client* client = nullptr;  // while it is connected
    std::string waiting = {};  // messages that arrived before it connected
  };

  void serve(const std::stop_token& stop);
  void join(TcpAdmission::Client client);
  std::string objection(const TcpHello& hello) const;
  void read(Client& client);
  void pass_on(Client& sender, const BootstrapHeader& header, const std::string& message);
  void deliver(Client& sender, Member& receiver, const std::string& message);
  void write(Client& client);
  void remove_lost();

  TcpAdmission admission_;
  const int ranks_;
  std::list<Client> clients_;
  std::map<std::string, std::vector<Member>> groups_;
  std::atomic<std::int64_t> messages_ = 0;
  std::atomic<bool> has_failed_ = false;  // a rank
  std::atomic<int> connected_ = 0;
  std::atomic<int> never_connected_;  // ranks, in the group with the most
  Wakeup ending_;
  std::jthread thread_;
};

}  // namespace stagecoach
