#include "parallel/comm/thread_world.h"

#include <fmt/format.h>

#include <utility>

#include "parallel/comm/communicator.h"

namespace stagecoach {

template <class Done>
void ThreadWorld::wait(std::unique_lock<std::mutex>& lock, const Done& done,
                       const std::function<std::string()>& doing) {
  const bool in_time = changed_.wait_for(lock, timeout_, [&] { return !failure_.empty() || done(); });
  if (done()) {
    return;  // what is there is there, whoever failed since
  }
  if (!failure_.empty()) {
    throw CommError(fmt::format("{}: stopped, as {}", doing(), failure_));
  }
  if (!in_time) {
    throw CommError(
        fmt::format("{}: no answer within {} s; is the other rank stuck, or does it expect other messages? "
                    "(--timeout waits longer)",
                    doing(), timeout_.count()));
  }
}

std::shared_ptr<ThreadWorld::Message> ThreadWorld::leave(const Address& address, const Tensor& tensor) {
  auto message = std::make_shared<Message>();
  message->tensor = tensor;
  message->ready.record({tensor.device(), Stream::kCompute});
  const std::lock_guard lock(mutex_);
  messages_[address].push_back(message);
  changed_.notify_all();
  return message;
}

void ThreadWorld::wait_taken(const Message& message, const std::function<std::string()>& doing) {
  std::unique_lock lock(mutex_);
  wait(
      lock, [&] { return message.taken; }, doing);
}

ThreadWorld::Message ThreadWorld::take(const Address& address, const std::function<std::string()>& doing) {
  std::unique_lock lock(mutex_);
  wait(
      lock, [&] { return messages_.contains(address); }, doing);
  const auto found = messages_.find(address);
  const std::shared_ptr<Message> message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    messages_.erase(found);
  }
  message->taken = true;
  changed_.notify_all();
  return std::exchange(*message, Message{{}, {}, true});
}

std::vector<std::any> ThreadWorld::meet(const std::string& meeting, int rank, int size, std::any mine,
                                        const std::function<std::string()>& doing) {
  std::unique_lock lock(mutex_);
  Meeting& here = meetings_[meeting];
  here.brought.resize(static_cast<std::size_t>(size));
  here.brought[static_cast<std::size_t>(rank)] = std::move(mine);
  if (++here.came == size) {
    changed_.notify_all();
  }
  wait(
      lock, [&] { return here.came == size; },
      [&] {
        std::string absent;
        for (int r = 0; r < size; ++r) {
          if (!here.brought[static_cast<std::size_t>(r)].has_value()) {
            absent += fmt::format("{}{}", absent.empty() ? "" : ", ", r);
          }
        }
        return fmt::format("{} (not yet there: rank {})", doing(), absent);
      });
  std::vector<std::any> all = here.brought;
  if (++here.left == size) {
    meetings_.erase(meeting);
  }
  return all;
}

void ThreadWorld::fail(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = who;
  }
  changed_.notify_all();
}

}  // namespace stagecoach
