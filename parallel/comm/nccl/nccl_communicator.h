#pragma once
/// @file
/// The communicator of ranks that have a GPU each: tensors go over a wire, which is NCCL's, and what is said about them
/// goes by mail. Nothing here needs a GPU, so tests run it over a wire of their own.
///
/// NCCL knows neither tags nor types nor deadlines, and a transfer holds its stream until the other rank has begun it
/// too. So a transfer begins only when both ranks are there:
///
///   sender                                    receiver
///   send_async: posts number and type         receive: waits for that, and checks the type
///                                             posts "go" with the number, and begins to receive
///   while it waits for anything: sees "go",
///   begins to send
///
/// A rank receives one message at a time. Messages to higher ranks go on one lane, those to lower ranks on the other:
/// then there is always a transfer that both its ranks have at the head of a lane, and no ring of ranks can wait for
/// each other. Operations of all begin when all ranks have said that they are in the same one.

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/tcp/mail.h"
#include "parallel/comm/wire.h"

namespace stagecoach {

class NcclCommunicator final : public ExchangeCommunicator {
 public:
  /// `mail` is this rank's in the whole world, `wire` this group's alone. The clock must be the wall's.
  NcclCommunicator(Mail& mail, std::unique_ptr<Wire> wire, Group group);
  ~NcclCommunicator() override;

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;
  void lend_core(bool /*lent*/) override {}  // it waits for the GPU, and lets others have the core
  void abandon() override { abandoned_.request_stop(); }

 private:
  /// A message that has not arrived yet.
  struct Sent {
    Tensor tensor;
    int to;
    std::shared_ptr<Wire::Transfer> transfer = nullptr;  // null before the receiver asks for it
    bool taken = false;
  };
  /// What is said about a message before it comes.
  struct Announced {
    std::string what;  // its number; or, without a tensor, the number that is the message
    std::string type;  // "float32[2, 3]"; or "number"
  };
  using Words = MailWait::Words;

  void exchange(const char* operation, const Tensor& like, Parcels& parcels) override;
  /// Returns when all ranks have called it. Throws CommError unless they did it for the same.
  void meet(const char* operation, const Tensor& like);
  /// What each rank says here, in a line. They say it to the first of the group, which tells all.
  std::vector<std::string> gather_words(const char* operation, const std::string& mine);
  void announce(int to, int tag, const std::string& what, const std::string& type);
  Announced wait_for_announcement(int from, int tag, const Words& words);
  Tensor take(const Tensor& tensor, int from, int tag);
  /// Begins to send what others have asked for, and forgets what has arrived.
  void serve();
  /// Serves others until `done` holds. When that fails, the wire's transfers are ended.
  template <class Done>
  void wait(const Done& done, const Words& words);
  std::unique_ptr<Wire> split_wire(int colour, int key, const char* operation);
  std::string key(const std::string& rest) const { return group().name + "/" + rest; }
  std::string message_key(int from, int tag) const;

  Mail& mail_;
  std::unique_ptr<Wire> wire_;
  std::stop_source abandoned_;
  std::map<std::int64_t, std::shared_ptr<Sent>> outbox_;
  std::int64_t next_ = 0;  // number of a message
  bool broken_ = false;
  int exceptions_before_;
};

}  // namespace stagecoach
