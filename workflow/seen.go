package workflow

// fewKeys is how many keys are looked at one by one.
const fewKeys = 12

// seen are the keys of one mapping and where they stand first. Most mappings have few, which are found faster without a
// map.
type seen struct {
	few  []keyAt
	many map[string]pos
}

type keyAt struct {
	key string
	at  pos
}

// at is where key stands, if it does.
func (s *seen) at(key string) (pos, bool) {
	if s.many != nil {
		at, ok := s.many[key]
		return at, ok
	}
	for _, k := range s.few {
		if k.key == key {
			return k.at, true
		}
	}
	return pos{}, false
}

func (s *seen) add(key string, at pos) {
	switch {
	case s.many != nil:
		s.many[key] = at
	case len(s.few) < fewKeys:
		s.few = append(s.few, keyAt{key, at})
	default:
		s.many = make(map[string]pos, 4*fewKeys)
		for _, k := range s.few {
			s.many[k.key] = k.at
		}
		s.many[key] = at
	}
}
