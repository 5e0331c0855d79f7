// Whom and what the store refuses, and that nobody else notices.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "tests/parallel/served_store.h"
#include "tests/parallel/store_stranger.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::hello;
using test::Insider;
using test::kLong;
using test::request;
using test::Served;
using test::Stranger;
using Request = TcpStoreRequest;

TEST(TcpStoreRefusals, AWrongTokenIsRefusedAtOnce) {
  Served store;
  const std::string token = store.server.address().token;
  for (const std::string& wrong : {std::string(), token.substr(1), token + "x", std::string(token.size(), 'x')}) {
    EXPECT_TRUE(fails_with<UsageError>(
        {"rank 0 (127.0.0.1:", "rejects this process", "its token differs from rank 0's", "STAGECOACH_TOKEN"}, [&] {
          TcpStore({store.server.address().at, wrong}, "rank 0", kLong);
        }));
  }
  const Stranger stranger(store.server);
  ASSERT_TRUE(stranger.say(hello("a wrong token") + request(Request::kAdd, "number", "", 1)));
  EXPECT_EQ(stranger.hear().substr(0, 18), "-its token differs");
  EXPECT_TRUE(stranger.is_sent_away());
  EXPECT_EQ(store.rank.add("number", 0), 0) << "what comes after a wrong token is not read";
}

TEST(TcpStoreRefusals, ARankThatIsTakenIsNamed) {
  Served store;
  const TcpStore one(store.server.address(), "rank 0", kLong, "rank 1");
  const std::string name = "two processes claim to be rank 1, this one and one from 127.0.0.1:";
  EXPECT_TRUE(fails_with<UsageError>({name.c_str(), "RANK"},
                                     [&] { TcpStore(store.server.address(), "rank 0", kLong, "rank 1"); }));
  EXPECT_TRUE(store.reports.have("two processes claim to be rank 1"));
  const ControlChannel mail(store.server.address(), "run", 1, 2, kLong);
  EXPECT_TRUE(fails_with<UsageError>({"two processes claim to be rank 1 of 'run'"},
                                     [&] { ControlChannel(store.server.address(), "run", 1, 2, kLong); }));
}

TEST(TcpStoreRefusals, MoreThanTheWorldAreRefused) {
  Served store({.clients = 2});
  {
    const TcpStore second(store.server.address(), "rank 0", kLong);
    EXPECT_TRUE(fails_with<UsageError>({"this store expects at most 2 connections", "other run"},
                                       [&] { TcpStore(store.server.address(), "rank 0", kLong); }));
  }
  EXPECT_EQ(TcpStore(store.server.address(), "rank 0", kLong).add("one has left", 1), 1);
}

TEST(TcpStoreRefusals, AddDoesNotWrap) {
  Served store;
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(store.rank.add("large", kMax), kMax);
  EXPECT_TRUE(fails_with<CommError>({"'large'", "overflows 64 bits"}, [&] { store.rank.add("large", 1); }));
  EXPECT_EQ(store.rank.add("large", -1), kMax - 1) << "neither the number nor the client has suffered";
  EXPECT_EQ(store.rank.add("small", -kMax), -kMax);
  EXPECT_TRUE(fails_with<CommError>({"'small'"}, [&] { store.rank.add("small", -kMax); }));
}

TEST(TcpStoreRefusals, WhatIsNoRequestEndsTheConnection) {
  Served store;
  std::string too_large = request(Request::kSet, "key");
  reinterpret_cast<TcpStoreRequest*>(too_large.data())->value_bytes = 0xffffffff;
  for (const std::string& bad : {request(static_cast<Request::Operation>(99), "key"), std::string(64, 'x'), too_large,
                                 request(Request::kPop, "a") + request(Request::kPop, "b")}) {
    const Insider client(store.server);
    ASSERT_TRUE(client.say(bad));
    EXPECT_EQ(client.hear().substr(0, 1), "-");
    EXPECT_TRUE(client.is_sent_away());
  }
  store.expect_service();
}

TEST(TcpStoreRefusals, WhatOneThatIsSentAwayLeftIsPushed) {
  Served store;
  const Insider client(store.server);
  ASSERT_TRUE(client.say(request(Request::kPushWhenLost, "news", "it is lost") + std::string(64, 'x')));
  EXPECT_EQ(store.rank.pop("news"), "it is lost");
}

// The sessions end one after the other; a client whose session is still there must not hear that the others are lost.
TEST(TcpStoreRefusals, AServerThatStopsReportsNoDeaths) {
  auto store = std::make_unique<Served>();
  const Insider first(store->server);
  ASSERT_TRUE(first.say(request(Request::kPushWhenLost, "news", "it is lost")));
  std::vector<Insider> between;
  for (int i = 0; i < 32; ++i) {
    between.emplace_back(store->server);
  }
  const Insider last(store->server);
  ASSERT_TRUE(last.say(request(Request::kPop, "news")));
  store->expect_service();  // the requests above were received meanwhile
  store.reset();
  EXPECT_EQ(last.hear(), "");
}

}  // namespace
}  // namespace stagecoach
