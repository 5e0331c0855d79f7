#pragma once
/// @file
/// An allocator for small objects that one thread makes and another one frees, such as the arguments of a queued call.
/// In the C library such a free takes the lock under which the first thread allocates, and each waits for the other.
/// Here it puts the memory on a list, from which threads take all at once: neither ever waits.

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace stagecoach {

/// Memory of blocks of one size. It is kept for the next objects, and never returned to the system.
template <std::size_t kBytes>
class RecycledMemory {
 public:
  static void* allocate() {
    thread_local Own own;
    if (own.first == nullptr) {
      own.first = freed().exchange(nullptr, std::memory_order_acquire);
    }
    return own.first == nullptr ? ::operator new(kBytes) : std::exchange(own.first, own.first->next);
  }
  static void release(void* memory) noexcept {
    auto* node = new (memory) Node{freed().load(std::memory_order_relaxed)};
    while (!freed().compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

 private:
  struct Node {
    Node* next;
  };
  static_assert(kBytes >= sizeof(Node));
  /// What a thread has taken from the list; it goes back when the thread ends.
  struct Own {
    Node* first = nullptr;
    ~Own() {
      while (first != nullptr) {
        release(std::exchange(first, first->next));
      }
    }
  };
  static std::atomic<Node*>& freed() {
    static auto& list = *new std::atomic<Node*>;  // never destroyed: objects may outlive static ones
    return list;
  }
};

/// For std::allocate_shared.
template <class T>
struct Recycled {
  using value_type = T;
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  Recycled() = default;
  template <class Other>
  explicit(false) Recycled(const Recycled<Other>& /*other*/) noexcept {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(count == 1 ? RecycledMemory<sizeof(T)>::allocate() : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    count == 1 ? RecycledMemory<sizeof(T)>::release(memory) : ::operator delete(memory);
  }
  bool operator==(const Recycled&) const = default;
};

}  // namespace stagecoach
