#pragma once
/// @file
/// A store with one rank that uses it, and what its server reports of others.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/tcp/tcp_store.h"

namespace stagecoach::test {

inline constexpr std::chrono::seconds kLong(60);

/// What the server says of those that it sends away.
class Reports {
 public:
  TcpStoreServer::Report to() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
      came_.notify_all();
    };
  }
  /// Waits for one that holds `text`.
  bool have(const std::string& text) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, kLong, [&] {
      return std::any_of(lines_.begin(), lines_.end(),
                         [&](const std::string& line) { return line.find(text) != std::string::npos; });
    });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
};

struct Served {
  explicit Served(const TcpStoreLimits& limits = {})
      : server({{"127.0.0.1", 0}, "a token of tests"}, limits, reports.to()), rank(server.address(), "rank 0", kLong) {}

  /// A value under "large", which is there on return.
  std::string set_large() {
    rank.set("large", std::string(TcpStore::kMaxBytes, 'x'));
    return rank.get("large");
  }

  /// The rank's calls are answered, each with what it asked for.
  void expect_service(int calls = 200) {
    const std::int64_t before = rank.add("calls", 0);
    for (int i = 1; i <= calls; ++i) {
      ASSERT_EQ(rank.add("calls", 1), before + i);
    }
  }

  Reports reports;
  TcpStoreServer server;
  TcpStore rank;
};

}  // namespace stagecoach::test
