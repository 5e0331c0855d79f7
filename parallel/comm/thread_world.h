#pragma once
/// @file
/// What ranks that are threads of one process share: messages that wait for their receivers, meetings of a group, and
/// the news that a rank has failed.

#include <any>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace stagecoach {

class ThreadWorld {
 public:
  explicit ThreadWorld(std::chrono::duration<double> timeout) : timeout_(timeout) {}

  struct Message {
    Tensor tensor;
    Event ready;  // when the sender's device has made the tensor
    bool taken = false;
  };
  /// Group, from, to, tag.
  using Address = std::tuple<std::string, int, int, int>;

  /// Leaves a message; the result tells when it was taken.
  std::shared_ptr<Message> leave(const Address& address, const Tensor& tensor);
  /// Waits until `message` was taken. `doing` describes the call in errors.
  void wait_taken(const Message& message, const std::function<std::string()>& doing);
  /// Waits for the next message, and takes the tensor out of it: the sender holds it no longer.
  Message take(const Address& address, const std::function<std::string()>& doing);

  /// Every rank of a group brings something; returns what all brought when the last one has come. `meeting` is unique
  /// in the group, `size` the group's.
  std::vector<std::any> meet(const std::string& meeting, int rank, int size, std::any mine,
                             const std::function<std::string()>& doing);

  /// Tells all ranks, also those that wait now, that `who` has failed. Only the first time counts.
  void fail(const std::string& who);

 private:
  struct Meeting {
    std::vector<std::any> brought;
    int came = 0;
    int left = 0;
  };
  /// Waits until `done` holds. Throws CommError after the timeout, or when a rank has failed.
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, const Done& done, const std::function<std::string()>& doing);

  const std::chrono::duration<double> timeout_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<Address, std::deque<std::shared_ptr<Message>>> messages_;
  std::map<std::string, Meeting> meetings_;
  std::string failure_;
};

}  // namespace stagecoach
