#pragma once
/// @file
/// The other side of a store's server as bytes: for clients that do what a TcpStore never does.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach::test {

inline TcpDeadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

inline std::string hello(const std::string& token, const std::string& name = "") {
  std::string bytes;
  append_head(bytes, TcpStoreHello{TcpStoreHello::kMagic, static_cast<std::uint32_t>(token.size()),
                                   static_cast<std::uint32_t>(name.size())});
  return bytes + token + name;
}

inline std::string request(TcpStoreRequest::Operation operation, const std::string& key, const std::string& value = "",
                           std::int64_t number = 0) {
  std::string bytes;
  append_head(bytes, TcpStoreRequest{operation, static_cast<std::uint32_t>(key.size()),
                                     static_cast<std::uint32_t>(value.size()), TcpStoreRequest::kMagic, number});
  return bytes + key + value;
}

/// A connection that knows nothing of stores.
class Stranger {
 public:
  explicit Stranger(const TcpStoreServer& server) : socket_(connect_to(server.address().at, soon())) {}

  /// False when the connection is lost.
  bool say(const std::string& bytes) const { return socket_.send(bytes.data(), bytes.size()); }

  /// The next answer: "+" or "-" for one that is done or refused, then its text. "" when the connection is lost.
  std::string hear() const {
    TcpStoreAnswer head{};
    if (socket_.receive(&head, sizeof(head), soon()) != TcpSocket::Outcome::done) {
      return "";
    }
    std::string text(head.value_bytes, '\0');
    if (socket_.receive(text.data(), text.size(), soon()) != TcpSocket::Outcome::done) {
      return "";
    }
    return (head.outcome == TcpStoreAnswer::kDone ? "+" : "-") + text;
  }

  /// Whether the server ends the connection without another byte.
  bool is_sent_away() const {
    char byte = 0;
    return socket_.receive(&byte, 1, soon()) == TcpSocket::Outcome::lost;
  }

 private:
  TcpSocket socket_;
};

/// One that has been let in.
class Insider : public Stranger {
 public:
  explicit Insider(const TcpStoreServer& server) : Stranger(server) {
    EXPECT_TRUE(say(hello(server.address().token)));
    EXPECT_EQ(hear(), "+");
  }
};

}  // namespace stagecoach::test
