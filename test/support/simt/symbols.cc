#include "test/support/simt/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

namespace motley::simt {
namespace {

// Of the program itself, which the loader names first.
struct Program {
  std::uintptr_t base = 0;
  std::uintptr_t locals = 0;  // of the calling thread
  std::size_t local_bytes = 0;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> segments;
};

int read_program(dl_phdr_info* info, std::size_t, void* to) {
  Program& program = *static_cast<Program*>(to);
  program.base = info->dlpi_addr;
  program.locals = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_TLS) program.local_bytes = part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    program.segments.emplace_back(begin, begin + part.p_memsz);
  }
  return 1;
}

Program program() {
  Program found;
  dl_iterate_phdr(read_program, &found);
  return found;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string result = status == 0 ? text.get() : name;
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at = result.find(kAnonymous); at != result.npos; at = result.find(kAnonymous))
    result.erase(at, kAnonymous.size());
  return result;
}

// `text` up to the parameters, without the type of the result.
std::string without_parameters(const std::string& text) {
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (depth == 0 && text[i] == ' ') begin = i + 1;
    if (depth == 0 && text[i] == '(') return text.substr(begin, i - begin);
  }
  return text;
}

}  // namespace

const Symbols& Symbols::get() {
  static const Symbols symbols;
  return symbols;
}

Symbols::Symbols() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> file(text.size());
  std::memcpy(file.data(), text.data(), text.size());
  read(file);
  for (const auto& [begin, end] : program().segments) segments_.push_back({begin, end, {}});
}

void Symbols::read(const std::vector<std::byte>& file) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(file.data());
  const auto* const sections = reinterpret_cast<const ElfW(Shdr)*>(file.data() + header->e_shoff);
  const std::uintptr_t base = program().base;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const auto* const symbols =
        reinterpret_cast<const ElfW(Sym)*>(file.data() + sections[s].sh_offset);
    const auto* const names =
        reinterpret_cast<const char*>(file.data() + sections[sections[s].sh_link].sh_offset);
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(ElfW(Sym)); ++i) {
      const ElfW(Sym)& symbol = symbols[i];
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) continue;
      const char* const name = names + symbol.st_name;
      if (type == STT_FUNC) {
        const std::uintptr_t begin = base + symbol.st_value;
        functions_.push_back({begin, begin + symbol.st_size, name});
      }
      if (type == STT_TLS)
        locals_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, demangled(name)});
    }
  }
  std::ranges::sort(functions_, {}, &Range::begin);
  std::ranges::sort(locals_, {}, &Range::begin);
}

const Symbols::Range* Symbols::find(const std::vector<Range>& ranges, std::uintptr_t at) {
  auto above = std::ranges::upper_bound(ranges, at, {}, &Range::begin);
  if (above == ranges.begin()) return nullptr;
  return (--above)->holds(at) ? &*above : nullptr;
}

std::string Symbols::place(const void* code) const {
  const auto at = reinterpret_cast<std::uintptr_t>(code);
  const Range* const found = find(functions_, at);
  if (found == nullptr) return fmt::format("{}", code);
  return fmt::format("{} + 0x{:x}", without_parameters(demangled(found->name.c_str())),
                     at - found->begin);
}

std::string Symbols::function(const void* code) const {
  const Range* const found = find(functions_, reinterpret_cast<std::uintptr_t>(code));
  if (found == nullptr) return fmt::format("{}", code);
  return without_parameters(demangled(found->name.c_str()));
}

const Symbols::Range* Symbols::local_variable(const void* address) const {
  static thread_local const std::uintptr_t begin = program().locals;
  return find(locals_, reinterpret_cast<std::uintptr_t>(address) - begin);
}

bool Symbols::is_local(const void* address) noexcept {
  static thread_local const Program own = program();
  return reinterpret_cast<std::uintptr_t>(address) - own.locals < own.local_bytes;
}

bool Symbols::is_static(const void* address) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return std::ranges::any_of(segments_, [at](const Range& part) { return part.holds(at); });
}

}  // namespace motley::simt
