#include "parallel/comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

constexpr const char* kNumber = "number";

Wire::Lane lane_between(int from, int to) { return from < to ? Wire::Lane::up : Wire::Lane::down; }

/// Numbers of messages come back as they were posted.
std::int64_t number_from(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

NcclCommunicator::NcclCommunicator(Mail& mail, std::unique_ptr<Wire> wire, Group group)
    : ExchangeCommunicator(std::move(group)),
      mail_(mail),
      wire_(std::move(wire)),
      exceptions_before_(std::uncaught_exceptions()) {
  STAGECOACH_CHECK(clock().kind() == ClockKind::wall, "transport nccl: a virtual clock");
}

NcclCommunicator::~NcclCommunicator() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (broken_ || unwinding || mail_.has_failed()) {
    wire_->abort();
    return;
  }
  try {
    wait([this] { return outbox_.empty(); }, [this] { return doing("end of the group"); });
    wire_->close();
  } catch (const Error&) {  // what was sent is not wanted; wait() has ended it
  }
}

template <class Done>
void NcclCommunicator::wait(const Done& done, const Words& words) {
  MailWait patience(mail_, abandoned_.get_token(), words);
  try {
    for (serve(); !done(); serve()) {
      patience.look();
    }
  } catch (const WireError& error) {
    broken_ = true;
    wire_->abort();
    throw CommError(fmt::format("{}: {}", words(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    wire_->abort();
    throw;
  }
}

void NcclCommunicator::serve() {
  while (const auto wanted = mail_.take(key("go"))) {
    Sent& sent = *outbox_.at(number_from(*wanted));
    sent.taken = sent.tensor.bytes() == 0;
    if (!sent.taken) {
      sent.transfer = wire_->start(lane_between(rank(), sent.to), {{Wire::Move::Way::out, sent.tensor, sent.to}});
    }
  }
  std::erase_if(outbox_, [](const auto& entry) {
    Sent& sent = *entry.second;
    sent.taken = sent.taken || (sent.transfer != nullptr && sent.transfer->is_done());
    if (sent.taken) {
      sent.tensor = {};
    }
    return sent.taken;
  });
}

std::string NcclCommunicator::message_key(int from, int tag) const {
  return key(fmt::format("message/{}/{}", from, tag));
}

void NcclCommunicator::announce(int to, int tag, const std::string& what, const std::string& type) {
  mail_.post(member(to), message_key(rank(), tag), what + " " + type);
}

NcclCommunicator::Announced NcclCommunicator::wait_for_announcement(int from, int tag, const Words& words) {
  const std::string wanted = message_key(from, tag);
  std::optional<std::string> text;
  wait([&] { return (text = mail_.take(wanted)).has_value(); }, words);
  const auto space = text->find(' ');
  return {text->substr(0, space), text->substr(space + 1)};
}

PendingSend NcclCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  const auto event = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  const auto sent = std::make_shared<Sent>(Sent{tensor.detach(), to});
  outbox_.emplace(next_, sent);
  announce(to, tag, std::to_string(next_++), type_of(tensor));
  const auto wait_taken = [this, sent, event, words = doing("send", "to", to, tag)] {
    const Waiting waiting(clock());
    wait([&] { return sent->taken; }, [&] { return words; });
    group().recorder->end(event);
  };
  return {wait_taken, [this, sent, event] {
            serve();
            if (sent->taken) {
              group().recorder->end(event);
            }
            return sent->taken;
          }};
}

Tensor NcclCommunicator::take(const Tensor& tensor, int from, int tag) {
  const Recorded recorded(*group().recorder, message_event("receive", from, tag, tensor.dtype(), tensor.shape()));
  const Span span("receive", "wait");
  const Waiting waiting(clock());
  const Words words = [&] { return doing("receive", "from", from, tag); };
  const Announced announced = wait_for_announcement(from, tag, words);
  if (announced.type != type_of(tensor)) {
    throw unexpected(words(), type_of(tensor), announced.type);
  }
  mail_.post(member(from), key("go"), announced.what);
  if (tensor.bytes() > 0) {
    const auto transfer = wire_->start(lane_between(from, rank()), {{Wire::Move::Way::in, tensor, from}});
    wait([&] { return transfer->is_done(); }, words);
  }
  return tensor;
}

PendingReceive NcclCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  return PendingReceive(
      [this, shape, dtype, from, tag] { return take(Tensor::empty(shape, dtype, device()), from, tag); });
}

void NcclCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  announce(to, tag, fmt::format("{:.17g}", number), kNumber);
}

double NcclCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*group().recorder, message_event("receive_number", from, tag, DType::float64, {1}));
  const Waiting waiting(clock());
  const Words words = [&] { return doing("receive_number", "from", from, tag); };
  const Announced announced = wait_for_announcement(from, tag, words);
  if (announced.type != kNumber) {
    throw unexpected(words(), "a number", announced.type);
  }
  return std::strtod(announced.what.c_str(), nullptr);
}

std::vector<std::string> NcclCommunicator::gather_words(const char* operation, const std::string& mine) {
  const auto next = [&](const std::string& from, const Words& words) {
    std::optional<std::string> text;
    wait([&] { return (text = mail_.take(key(from))).has_value(); }, words);
    return *text;
  };
  std::string all = mine;  // a line a rank
  if (rank() > 0) {
    mail_.post(member(0), key(fmt::format("here/{}", rank())), mine);
    all = next("all", [&] { return doing(operation); });
  } else {
    for (int r = 1; r < size(); ++r) {
      all += '\n' + next(fmt::format("here/{}", r),
                         [&] { return fmt::format("{} (not yet there: rank {})", doing(operation), member(r)); });
    }
    for (int r = 1; r < size(); ++r) {
      mail_.post(member(r), key("all"), all);
    }
  }
  std::vector<std::string> lines;
  std::istringstream stream(all);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

void NcclCommunicator::meet(const char* operation, const Tensor& like) {
  const std::string called = operation;
  const std::string type = type_of(like);
  const auto all = gather_words(operation, called + ";" + type);
  for (int r = 0; r < size(); ++r) {
    const std::string& words = all[static_cast<std::size_t>(r)];
    const auto end = words.find(';');
    if (words.substr(0, end) != called) {
      throw other_operation(operation, r, words.substr(0, end));
    }
    if (words.substr(end + 1) != type) {
      throw other_type(operation, like, r, words.substr(end + 1));
    }
  }
}

void NcclCommunicator::exchange(const char* operation, const Tensor& like, Parcels& parcels) {
  meet(operation, like);
  std::vector<Wire::Move> moves;
  for (int r = 0; r < size(); ++r) {
    const Parcel& parcel = parcels[static_cast<std::size_t>(r)];
    if (r != rank() && parcel.in.defined() && parcel.in.bytes() > 0) {
      moves.push_back({Wire::Move::Way::in, parcel.in, r});
    }
    if (r != rank() && parcel.out.defined() && parcel.out.bytes() > 0) {
      moves.push_back({Wire::Move::Way::out, parcel.out, r});
    }
  }
  if (moves.empty()) {
    return synchronize({device(), Stream::kCompute});
  }
  const auto transfer = wire_->start(Wire::Lane::up, std::move(moves));
  wait([&] { return transfer->is_done(); }, [&] { return doing(operation); });
}

std::unique_ptr<Wire> NcclCommunicator::split_wire(int colour, int key, const char* operation) {
  const auto words = [&] { return doing(operation); };
  MailWait patience(mail_, abandoned_.get_token(), words);
  try {
    return wire_->split(colour, key, [&] { patience.look(); });
  } catch (const WireError& error) {
    broken_ = true;
    throw CommError(fmt::format("{}: {}", words(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    throw;
  }
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  // NCCL takes colours from 0, so the first member stands for its group.
  auto wire = split_wire(part.members[0], part.rank, "split");
  return std::make_unique<NcclCommunicator>(mail_, std::move(wire), std::move(part));
}

std::unique_ptr<Communicator> NcclCommunicator::duplicate() {
  static_cast<void>(
      gather_words("duplicate", "duplicate"));  // a rank that comes later may still need a message before it does
  auto wire = split_wire(0, rank(), "duplicate");
  return std::make_unique<NcclCommunicator>(mail_, std::move(wire), duplicated());
}

}  // namespace stagecoach
