"""attention: ours traced/eager vs torch, 1-thread CPU time (or 2 threads wall with 'wall')."""
import sys, time, numpy as np, torch
import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.runtime import threads
wall='wall' in sys.argv
if not wall: threads.set_num_threads(1); torch.set_num_threads(1)
else: torch.set_num_threads(2)
clock=time.perf_counter if wall else time.thread_time
rng=np.random.default_rng(0)
shapes=[tuple(map(int,a.split('x'))) for a in sys.argv if a[0].isdigit()] or [(8,8,256,64),(1,8,2048,64)]
for shape in shapes:
  for causal in (False,True):
    arr=[rng.standard_normal(shape).astype('f') for _ in range(4)]
    q,k,v,g=map(hm.asarray,arr); tq,tk,tv,tg=map(torch.from_numpy,arr)
    A=lambda q,k,v: F.scaled_dot_product_attention(q,k,v,is_causal=causal)
    T=lambda: torch.nn.functional.scaled_dot_product_attention(tq,tk,tv,is_causal=causal)
    fwd=hm.trace(A)
    qq,kk,vv=(t.requires_grad_() for t in map(hm.asarray,arr[:3])); tqq,tkk,tvv=(t.clone().requires_grad_() for t in (tq,tk,tv))
    @hm.trace
    def step(q,k,v,g):
        y=A(q,k,v); return (y.detach(),*hm.autograd.grad(y,(q,k,v),g))
    def estep():
        y=A(qq,kk,vv); return hm.autograd.grad(y,(qq,kk,vv),g)
    def tstep():
        y=torch.nn.functional.scaled_dot_product_attention(tqq,tkk,tvv,is_causal=causal); return torch.autograd.grad(y,(tqq,tkk,tvv),tg)
    cases={'trace':lambda:fwd(q,k,v),'eager':lambda:A(q,k,v),'torch':T,'trace f+b':lambda:step(qq,kk,vv,g),'eager f+b':estep,'torch f+b':tstep}
    res={}
    for n,f in cases.items(): f()
    reps=12 if np.prod(shape)*shape[2]<5e8 else 4
    for _ in range(reps):
        for n,f in cases.items():
            s=clock(); f(); res.setdefault(n,[]).append(clock()-s)
    m={n:min(r)*1e3 for n,r in res.items()}
    print(shape,'causal' if causal else 'full  ',' '.join('%s %.2f'%x for x in m.items()),'ratio fwd %.2f f+b %.2f'%(m['torch']/m['trace'],m['torch f+b']/m['trace f+b']),flush=True)
